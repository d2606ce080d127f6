# Shared by the scripts here: suites one after the other or side by side, skipping, installing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_PROGRESS_WHEN=never

summary=()
failed=()

# note NAME SECONDS STATUS: a line of the summary, beside what the suite may take.
declare -A budget=()
note() {
  local result=ok
  if [ "$3" != 0 ]; then result=FAILED failed+=("$1"); fi
  summary+=("$(printf '%4ds %6s  %-6s  %s' "$2" "${budget[$1]:+of ${budget[$1]}}" "$result" "$1")")
}

# suite NAME COMMAND...: runs a suite, remembers how long it took and whether it held. The others run all the same.
suite() {
  local name=$1 start=$SECONDS status
  shift
  printf '\n== %s\n' "$name"
  # In a shell of its own and not behind `if` or `||`, where `set -e` would not hold.
  set +e
  (set -e; trap - EXIT; "$@")
  status=$?
  set -e
  note "$name" $((SECONDS - start)) $status
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
  local suite pid name status
  for suite in "${begun[@]}"; do
    read -r pid name <<<"$suite"
    status=0
    wait "$pid" || status=$?
    printf '\n== %s\n' "$name"
    cat "$logs/$name"
    note "$name" "$(cat "$logs/$name.seconds" 2>/dev/null || echo 0)" $status
  done
  begun=()
}

# At the end, and whenever it ends early: nothing that was begun is left behind, and the summary is the last thing printed.
leave() {
  local status=$? suite
  trap - EXIT
  for suite in "${begun[@]}"; do
    kill -- "-${suite%% *}" 2>/dev/null || true
    summary+=("            ended   ${suite#* }")
  done
  wait
  rm -rf "$logs"
  if [ ${#summary[@]} -gt 0 ]; then
    printf '\n%s\n' "${summary[@]}" "$(printf '%4ds %6s  in all' $SECONDS "${budget[all]:+of ${budget[all]}}")"
  fi
  for suite in "${failed[@]}"; do echo "error: failed: $suite"; done
  if [ ${#failed[@]} -gt 0 ]; then status=1; fi
  exit $status
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# skip NAME WHY: without what it needs a suite is skipped by name; where everything must run, that is a failure.
skip() {
  summary+=("            skip    $1: $2")
  if [ "${CI:-}" = true ]; then failed+=("$1 cannot be skipped here: $2"); fi
}

# install PACKAGE...: installs Debian packages that are missing, if that is possible here. The lists are refreshed first, once:
# an old list installs an old browser, and what breaks in today's goes unseen.
refreshed=
install() {
  command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 1
  [ "$refreshed" ] || apt-get update -qq >/dev/null || echo "warning: the package lists could not be refreshed" >&2
  refreshed=1
  apt-get install -qq -y --no-install-recommends "$@" >/dev/null
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

# page_if_node: without Node the gateway serves a plain page instead of the playground.
page_if_node() {
  command -v node >/dev/null && command -v npm >/dev/null || return 0
  page || echo "warning: the playground could not be built; the gateway serves a plain page" >&2
}
