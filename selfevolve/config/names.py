"""Names that Ask-E's section of a recipe gives to models of the run itself."""

OWN = ("base", "initial", "current", "previous")  # solvers of the run, at the moment
SELF = "questioner"  # the policy's own current weights; a cross-check only
