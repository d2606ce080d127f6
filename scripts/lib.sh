# shellcheck shell=bash
# Shared by the scripts here: suites one after the other or side by side, skipping, installing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_PROGRESS_WHEN=never
# Python and pytest store what they compile, or every run would compile it again.
unset PYTHONDONTWRITEBYTECODE

summary=()
failed=()

# note NAME SECONDS PROCESSOR STATUS: adds a line to the summary, with the suite's budget. Suites
# that run side by side share the processors, so the line has the processor time as well.
declare -A budget=() results=()
note() {
  results[$1]=ok
  if [ "$4" != 0 ]; then results[$1]=FAILED failed+=("$1"); fi
  local of=${budget[$1]:+of ${budget[$1]}}
  summary+=("$(printf '%4ds %6s %5ds cpu  %-6s  %s' "$2" "$of" "$3" "${results[$1]}" "$1")")
}

# processor < TIMES: the seconds of processor time in what `times` prints.
processor() {
  tr -s ' ms' '\n  ' | awk '{ total += 60 * $1 + $2 } END { printf "%d", total }'
}

# suite NAME COMMAND...: runs a suite, and records its time and result. A failure does not stop the
# other suites.
# Never behind `if`, `&&` or `||`, which switch off `set -e` inside; use `held NAME` afterwards.
suite() {
  printf '\n== %s\n' "$1"
  start "$@"
  finish
}

# begin NAME COMMAND...: starts a suite beside others. `join` prints its output when it has ended.
begin() {
  start "$@" >"$logs/$1" 2>&1
}

# join: waits for the suites that `begin` started, and prints them in that order.
join() {
  while [ ${#running[@]} -gt 0 ]; do finish; done
}

# held NAME: the suite has run, and has not failed.
held() {
  [ "${results[$1]:-}" = ok ]
}

# The running suites, oldest first: PID NAME.
running=()
logs=$(mktemp -d)

# in_memory: puts temporary files into memory, if there is room. Tests sync most of them, and none
# is needed later.
scratch=
in_memory() {
  local room
  room=$(df --output=avail --block-size=1M /dev/shm 2>/dev/null | tail -1) || return 0
  [ -w /dev/shm ] && [ "$room" -gt 4096 ] || return 0
  scratch=$(mktemp -d /dev/shm/capstan.XXXXXX)
  # PostgreSQL runs as another user.
  chmod 711 "$scratch"
  export TMPDIR=$scratch
}

# start NAME COMMAND...: in a process group of its own, so that all of it can be ended at once.
start() {
  set -m
  (
    # Its variables are expanded now: when a command fails, those of this function are gone.
    # shellcheck disable=SC2064
    trap "echo \$((EPOCHSECONDS - $EPOCHSECONDS)) >'$logs/$1.seconds'; times >'$logs/$1.times'" EXIT
    "${@:2}"
  ) </dev/null &
  running+=("$! $1")
  set +m
}

# finish: waits for the oldest suite, and adds it to the summary.
finish() {
  local pid name status=0
  read -r pid name <<<"${running[0]}"
  wait "$pid" || status=$?
  running=("${running[@]:1}")
  print_log "$name"
  local seconds cpu
  seconds=$(cat "$logs/$name.seconds" 2>/dev/null || echo 0)
  cpu=$(processor <"$logs/$name.times" 2>/dev/null || echo 0)
  note "$name" "$seconds" "$cpu" $status
}

# print_log NAME: prints the output of a suite that `begin` started.
print_log() {
  if [ -f "$logs/$1" ]; then printf '\n== %s\n' "$1" && cat "$logs/$1"; fi
}

# stop: interrupts what still runs, as Ctrl-C does, so that test runners report their state; kills
# what does not end.
stop() {
  local signal entry
  for signal in INT TERM KILL; do signal "$signal"; done
  wait
  for entry in "${running[@]}"; do
    print_log "${entry#* }"
    summary+=("                       ended   ${entry#* }")
  done
}

# signal NAME: sends a signal to all running suites, and waits up to 5 s for their end.
signal() {
  local entry tries=50
  for entry in "${running[@]}"; do kill "-$1" -- "-${entry%% *}" || true; done
  for entry in "${running[@]}"; do
    while [ $tries -gt 0 ] && kill -0 -- "-${entry%% *}"; do
      tries=$((tries - 1))
      sleep 0.1
    done
  done
}

# Runs at the end, also at an early one: cleans up, and prints the summary last.
leave() {
  local status=$? suite
  trap - EXIT
  trap '' HUP INT TERM
  stop 2>/dev/null
  rm -rf "$logs" ${scratch:+"$scratch"}
  if [ ${#summary[@]} -gt 0 ]; then
    printf '\n'
    printf '%s\n' "${summary[@]}"
    printf '%4ds %6s  in all\n' $SECONDS "${budget[all]:+of ${budget[all]}}"
  fi
  for suite in "${failed[@]}"; do echo "error: failed: $suite"; done
  if [ ${#failed[@]} -gt 0 ]; then status=1; fi
  exit $status
}
trap leave EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# omit NAME WHY: names in the summary what does not run here.
omit() {
  summary+=("                       skip    $1: $2")
}

# skip NAME WHY: the same for a suite. In continuous integration it is a failure.
skip() {
  omit "$@"
  if [ "${CI:-}" = true ]; then failed+=("$1 cannot be skipped here: $2"); fi
}

# install PACKAGE...: installs missing Debian packages, if that is possible here. It refreshes the
# lists once: with an old list, tests would run in an old browser. It waits for another installation
# that is in progress.
refreshed=
install() {
  local apt=(apt-get -o DPkg::Lock::Timeout=120 -qq)
  command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 1
  [ "$refreshed" ] || "${apt[@]}" update >/dev/null ||
    echo "warning: the package lists could not be refreshed" >&2
  refreshed=1
  DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y --no-install-recommends "$@" >/dev/null
}

# have COMMAND PACKAGE: succeeds if the command exists, or could be installed.
have() {
  command -v "$1" >/dev/null || install "$2"
}

have_node() {
  have node nodejs && have npm npm
}

# have_postgres: tests need the program only, so installing it creates and starts no cluster.
have_postgres() {
  local conf=/etc/postgresql-common
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null && return
  [ -w /etc ] && mkdir -p $conf && echo 'create_main_cluster = false' >>$conf/createcluster.conf
  install postgresql
}

# have_faketime: a library that sets the clock of one process only.
have_faketime() {
  compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || install libfaketime
}

# have_chromium: Debian has a package without a desktop; other systems have the whole browser.
have_chromium() {
  have chromium-headless-shell chromium-headless-shell 2>/dev/null || have chromium chromium
}

# have_venv: Debian ships Python without what a venv needs.
have_venv() {
  have python3 python3 && { python3 -c 'import ensurepip' 2>/dev/null || install python3-venv; }
}

# venv: one for all Python suites. It is made again when their requirements or Python change; a warm
# run does not call pip.
venv() {
  local needs=(tests/python/requirements.txt bindings/python/tests/requirements.txt) stamp
  stamp="$(python3 --version) $(cat "${needs[@]}" | sha256sum)"
  [ "$(cat .venv/stamp 2>/dev/null)" = "$stamp" ] && return
  python3 -m venv --clear .venv
  .venv/bin/pip install --quiet --disable-pip-version-check "${needs[@]/#/--requirement=}"
  printf '%s\n' "$stamp" >.venv/stamp
}

# have_idle SERVER...: succeeds if the servers exist, or could be installed. Debian would start
# them, now and at every boot; tests need the programs only.
have_idle() {
  local server missing=() policy=/usr/sbin/policy-rc.d
  for server in "$@"; do
    PATH="$PATH:/usr/sbin" command -v "$server" >/dev/null || missing+=("$server")
  done
  [ ${#missing[@]} = 0 ] && return
  (
    if [ ! -e $policy ] && [ -w /usr/sbin ]; then
      trap 'rm -f $policy' EXIT
      printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy
    fi
    install "${missing[@]}"
  ) || return
  if command -v systemctl >/dev/null; then
    systemctl --quiet disable "${missing[@]}" 2>/dev/null || true
  fi
}

# npm_ci: installs what web/package-lock.json names, if that has changed since.
npm_ci() {
  local stamp=web/node_modules/.capstan-lock
  cmp -s web/package-lock.json "$stamp" && return
  (cd web && npm ci --silent --no-audit --no-fund) && cp web/package-lock.json "$stamp"
}

# have_clis: Claude Code and Codex, which tests/coding-clis/package-lock.json names; 760 MB.
have_clis() {
  local stamp=tests/coding-clis/node_modules/.capstan-lock lock=tests/coding-clis/package-lock.json
  cmp -s $lock $stamp && return
  npm --prefix tests/coding-clis ci --silent --no-audit --no-fund && cp $lock $stamp
}

# page: builds the playground that the binary embeds, if its sources are newer than what was built.
page() {
  local built=web/playground/dist/index.html
  npm_ci
  [ -f "$built" ] && [ -z "$(page_sources -newer "$built" -print -quit)" ] && return
  (cd web && npm run build --workspace capstan-playground --silent)
}

# page_sources CONDITION...: the files that the playground is built from.
page_sources() {
  local places=(web/playground web/packages/capstan/src web/package-lock.json)
  find "${places[@]}" -type f -not -name .tsbuildinfo \
    -not -path '*/dist/*' -not -path '*/test/*' -not -path '*/node_modules/*' "$@"
}

# page_if_node: without Node the gateway serves a plain page instead of the playground.
page_if_node() {
  command -v node >/dev/null && command -v npm >/dev/null || return 0
  page || echo "warning: the playground was not built; the gateway serves a plain page" >&2
}
