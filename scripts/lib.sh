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

# have_idle SERVER...: the servers are there, or were just installed. Debian would start them, now and at every boot; here
# they are only programs for tests.
have_idle() {
  local server missing=() policy=/usr/sbin/policy-rc.d
  for server in "$@"; do PATH="$PATH:/usr/sbin" command -v "$server" >/dev/null || missing+=("$server"); done
  [ ${#missing[@]} = 0 ] && return
  (
    if [ ! -e $policy ] && [ -w /usr/sbin ]; then
      trap 'rm -f $policy' EXIT
      printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy
    fi
    install "${missing[@]}"
  ) || return
  if command -v systemctl >/dev/null; then systemctl --quiet disable "${missing[@]}" 2>/dev/null || true; fi
}

# npm_ci: installs what web/package-lock.json names, if that has changed since.
npm_ci() {
  local stamp=web/node_modules/.capstan-lock
  cmp -s web/package-lock.json "$stamp" && return
  (cd web && npm ci --silent --no-audit --no-fund) && cp web/package-lock.json "$stamp"
}

# page: builds the playground that the binary embeds, if its sources are newer than what was built.
page() {
  local built=web/playground/dist/index.html
  npm_ci
  [ -f "$built" ] && [ -z "$(find web/playground web/packages/capstan/src web/package-lock.json -newer "$built" -type f -not -path '*/dist/*' -not -name .tsbuildinfo -print -quit)" ] && return
  (cd web && npm run build --workspace capstan-playground --silent)
}

finish() {
  printf '\n'
  printf '%s\n' "${summary[@]}"
}
