# Shared by the scripts here: timing, skipping, installing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_PROGRESS_WHEN=never

summary=()

# suite NAME COMMAND...: runs a suite, remembers how long it took, stops at the first failure.
suite() {
  local name=$1 start=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  "$@"
  summary+=("$(printf '%4ds  %s' $((SECONDS - start)) "$name")")
}

# skip NAME WHY: without what it needs a suite is skipped by name; where everything must run, that is a failure.
skip() {
  summary+=("skip   $1: $2")
  if [ "${CI:-}" = true ]; then
    printf 'error: %s cannot be skipped here: %s\n' "$1" "$2" >&2
    exit 1
  fi
}

# install PACKAGE...: installs Debian packages that are missing, if that is possible here.
install() {
  command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 1
  apt-get install -qq -y --no-install-recommends "$@" >/dev/null 2>&1 && return
  apt-get update -qq >/dev/null && apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

# have COMMAND PACKAGE: the command is there, or was just installed.
have() {
  command -v "$1" >/dev/null || install "$2"
}

finish() {
  printf '\n'
  printf '%s\n' "${summary[@]}"
}
