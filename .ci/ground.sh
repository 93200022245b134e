# Sourced by the others: where they stand, a Python that is new enough with venv in it, and make.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PATH:/usr/sbin:/sbin"

install() { # Debian's packages; the lists of what there is are fetched once
  [ -n "${PRIMUS_APT_UPDATED:-}" ] || { echo "+ apt-get update" && apt-get update -qq; } || return
  export PRIMUS_APT_UPDATED=1
  echo "+ apt-get install -y $*"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" </dev/null
}

command -v make >/dev/null || install make
python=python3
for candidate in python3.11 python3.12 python3.13 python3; do
  if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    python=$candidate
    break
  fi
done
"$python" -c 'import venv, ensurepip' 2>/dev/null || install python3-venv
