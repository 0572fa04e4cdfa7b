"""Name the packages: the code, and the top-level folder of recipes, which is installed as ``selfevolve_recipes``."""

from setuptools import find_packages, setup

CODE = ["selfevolve", "selfevolve.*", "aske", "aske.*", "validity", "validity.*", "novelty", "novelty.*"]

setup(
    py_modules=["aske_v1"],  # verifiers finds its plugins by a top-level name
    packages=[*find_packages(include=CODE), "selfevolve_recipes"],
    package_dir={"selfevolve_recipes": "recipes"},
)
