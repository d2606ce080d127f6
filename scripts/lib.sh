# Shared by the scripts here: suites one after the other or side by side, skipping, installing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_PROGRESS_WHEN=never

summary=()
failed=()

# suite NAME COMMAND...: runs a suite, remembers how long it took, stops at the first failure.
suite() {
  local name=$1 start=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  "$@"
  summary+=("$(printf '%4ds  %s' $((SECONDS - start)) "$name")")
}

# begin NAME COMMAND...: starts a suite beside others. What it says is kept until `join` prints it whole.
begun=()
logs=$(mktemp -d)
begin() {
  local name=$1
  shift
  set -m # A process group of its own: whoever is interrupted can end all of it.
  (trap 'echo $SECONDS >"$logs/$name.seconds"' EXIT; SECONDS=0; "$@") >"$logs/$name" 2>&1 </dev/null &
  begun+=("$! $name")
  set +m
}

# join: waits for the suites that were begun, prints them in that order, and remembers which of them failed.
join() {
  local suite pid name
  for suite in "${begun[@]}"; do
    read -r pid name <<<"$suite"
    wait "$pid" || failed+=("$name")
    printf '\n== %s\n' "$name"
    cat "$logs/$name"
    summary+=("$(printf '%4ds  %s' "$(cat "$logs/$name.seconds")" "$name")")
  done
  begun=()
}

# At the end, and whenever it ends early: nothing that was begun is left behind.
leave() {
  local suite
  for suite in "${begun[@]}"; do kill -- "-${suite%% *}" 2>/dev/null || true; done
  wait
  rm -rf "$logs"
}
trap leave EXIT

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

# have_venv: Debian ships Python without what a venv needs.
have_venv() {
  have python3 python3 && { python3 -c 'import ensurepip' 2>/dev/null || install python3-venv; }
}

# venv: one for all Python suites, made anew when what they need or Python changes; a warm run does not ask pip.
venv() {
  local needs=(tests/python/requirements.txt bindings/python/tests/requirements.txt) stamp
  stamp="$(python3 --version) $(cat "${needs[@]}" | sha256sum)"
  [ "$(cat .venv/stamp 2>/dev/null)" = "$stamp" ] && return
  python3 -m venv --clear .venv
  .venv/bin/pip install --quiet --disable-pip-version-check "${needs[@]/#/--requirement=}"
  printf '%s\n' "$stamp" >.venv/stamp
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

# finish: the times, and the suites that failed.
finish() {
  printf '\n'
  printf '%s\n' "${summary[@]}"
  if [ "${#failed[@]}" -gt 0 ]; then
    printf 'error: failed: %s\n' "${failed[@]}" >&2
    exit 1
  fi
}
