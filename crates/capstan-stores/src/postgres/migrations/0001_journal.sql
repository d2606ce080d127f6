-- The tables and functions of the journal.
-- A change of them is a new file, 0002_….sql, and its number is the new schema. A build that is
-- older than meta.min_writer stops at its next heartbeat.
-- Times of runs are microseconds by the clock of the writing process. Leases use the clock of the
-- database alone.

create table capstan.meta (
  one bool primary key default true check (one),
  schema int not null,
  -- Builds that do not know this schema must not write.
  min_writer int not null,
  secret bytea not null,
  -- The process that applies retention, and until when no other process does.
  sweeper uuid,
  sweeper_until timestamptz
);

-- The leases of processes. A process that loses its lease begins another one with a new id.
-- States: 1 live, 2 draining, 3 gone.
create table capstan.replicas (
  id uuid primary key,
  name text not null,
  url text,
  version text not null,
  since timestamptz not null,
  heartbeat_at timestamptz not null,
  state smallint not null,
  -- The load, reported with heartbeats: open responses, and the 95th percentile of appends.
  responses bigint,
  append_p95_us bigint
) with (fillfactor = 50);

-- A row for each writer connection of a lease: 0 frames, 1 claims, 2 changes, 3 others.
-- Every writing statement share-locks its row. A process that sets `fenced` therefore knows that
-- no later statement of that lease commits. Nothing else changes these rows.
create table capstan.writers (
  replica uuid not null references capstan.replicas on delete cascade,
  writer int not null,
  fenced bool not null default false,
  primary key (replica, writer)
);

create table capstan.claims (
  tenant text not null,
  key text not null,
  stream uuid not null,
  -- When its stream was deleted. A claim outlives its stream.
  deleted_at bigint,
  primary key (tenant, key)
);
create index claims_deleted on capstan.claims (stream) where deleted_at is not null;
create index claims_age on capstan.claims (deleted_at) where deleted_at is not null;

-- States: 1 running, 2 waiting, 3 closed.
-- `last_seq` and `bytes` are those of the last change of state. While a run is running, its last
-- block has the current counts, so that an append updates no row.
create table capstan.runs (
  stream uuid primary key,
  tenant text not null,
  key text not null,
  session text not null,
  state smallint not null,
  attempt int not null,
  -- The lease that alone may change the run while it is running.
  owner uuid,
  -- The owner has taken it over from a process that is gone.
  is_adopted bool not null default false,
  is_stop_asked bool not null default false,
  -- If it waits, a gateway starts the next attempt, not its client.
  is_armed_by_gateway bool not null,
  -- It ended with questions to its client that have no answer yet.
  has_questions bool not null default false,
  answered_by uuid,
  -- When the answer was last written completely to a client.
  sent_at bigint,
  turns_before bigint not null,
  record json not null,
  body bytea not null,
  last_seq bigint not null default 0,
  bytes bigint not null default 0,
  updated_at bigint not null,
  closed_at bigint,
  -- The incarnation of the server without which unsynced packets of this run may be lost. Empty if
  -- it has none, `lost` if packets are lost.
  incarnation text not null,
  -- The id of the last change of state, which tells whether a repeated change was made already.
  change uuid,
  chat text,
  body_hash text not null,
  request_ids text[] not null default '{}'
) with (fillfactor = 70);
create index runs_listed on capstan.runs (tenant, stream);
create index runs_session on capstan.runs (tenant, session, stream);
create index runs_open on capstan.runs (tenant, session) where state < 3;
create index runs_chat on capstan.runs (tenant, chat, stream) where chat is not null;
create index runs_body on capstan.runs (tenant, body_hash, stream);
create index runs_request on capstan.runs using gin (request_ids);
create index runs_owner on capstan.runs (owner) where state = 1;
create index runs_stop on capstan.runs (owner) where state = 1 and is_stop_asked;
create index runs_waiting on capstan.runs (updated_at) where state = 2;
create index runs_unarmed on capstan.runs (stream) where state = 2 and is_armed_by_gateway;
create index runs_closed on capstan.runs (closed_at, stream) where state = 3;

-- Blocks of packets. Each fits a page.
create table capstan.blocks (
  stream uuid not null,
  last_seq bigint not null,
  -- The size of all packets of the stream up to here.
  total bigint not null,
  data bytea not null,
  primary key (stream, last_seq)
) with (toast_tuple_target = 8160);
alter table capstan.blocks alter column data set storage external;

create table capstan.sessions (
  tenant text not null,
  session text not null,
  used_at bigint not null,
  -- The number of the last turn, how many turns are stored, and their size.
  last_turn bigint not null default 0,
  turn_count bigint not null default 0,
  bytes bigint not null default 0,
  primary key (tenant, session)
) with (fillfactor = 70);
create index sessions_age on capstan.sessions (used_at);

create table capstan.turns (
  tenant text not null,
  session text not null,
  number bigint not null,
  stream uuid not null unique,
  turn json not null,
  primary key (tenant, session, number)
);

-- Tenants with a limit, or with used tokens. A row is locked while a claim is checked, and while
-- used tokens are added. Windows are minutes and days since 1970, by the clocks of the writers.
create table capstan.tenants (
  tenant text primary key,
  rate_until timestamptz,
  minute bigint not null default 0,
  minute_tokens bigint not null default 0,
  day bigint not null default 0,
  day_tokens bigint not null default 0
) with (fillfactor = 50);

-- The process that hosts each `no_store` tenant in its memory. No content of these tenants is
-- stored.
create table capstan.tenant_hosts (
  tenant text primary key,
  replica uuid not null,
  since timestamptz not null
);

-- Circuit breakers of upstreams. A row changes with the state of a breaker, not with each call.
create table capstan.breakers (
  upstream text primary key,
  -- How often in a row it has opened; 0 if it is closed.
  opened int not null,
  open_until timestamptz not null,
  change uuid not null
);

-- The readers of runs without a key. Such a run is stopped when it has no reader any more, and a
-- repeated request gets it if it has none. There is a row for each run and process, however many
-- readers the process has. It counts as long as the lease of the process.
create table capstan.readers (
  stream uuid not null,
  replica uuid not null references capstan.replicas on delete cascade,
  -- When the last reader left; null while there is one.
  left_at timestamptz,
  primary key (stream, replica)
) with (fillfactor = 70);

-- Until when a client of a tenant was told to wait before it retries.
create table capstan.expected_clients (
  tenant text primary key,
  until timestamptz not null
);

-- Statistics of ended runs, by hour. A later build may append more counts to the array.
create table capstan.rollups (
  hour bigint not null,
  replica text not null,
  tenant text not null,
  agent text not null,
  is_fault bool not null,
  code text not null,
  counts bigint[] not null,
  primary key (hour, replica, tenant, agent, is_fault, code)
) with (fillfactor = 70);

-- The values of a member in a run's record and in its attempts, for indices. An index calls this
-- twice for each written run. It is PL/pgSQL because an SQL function is planned at each call, which
-- was most of the cost of a claim. Most records have no fault at all.
create function capstan.attempt_values(record json, member text) returns text[]
language plpgsql immutable as $$
begin
  if strpos($1::text, '"' || $2 || '"') = 0 then return '{}'; end if;
  return (select coalesce(array_agg(distinct n.word), '{}') from (
    select $1 ->> $2 as word
    union all
    select a ->> $2 from json_array_elements(coalesce($1 -> 'attempts', '[]'::json)) a) n
  where n.word is not null);
end $$;

create function capstan.fault_codes(record json) returns text[]
language plpgsql immutable as $$
begin return capstan.attempt_values($1, 'fault'); end $$;

create function capstan.trace_ids(record json) returns text[]
language plpgsql immutable as $$
begin return capstan.attempt_values($1, 'trace_id'); end $$;

create index runs_fault on capstan.runs using gin (capstan.fault_codes(record))
  where capstan.fault_codes(record) <> '{}';
create index runs_trace on capstan.runs using gin (capstan.trace_ids(record))
  where capstan.trace_ids(record) <> '{}';

-- Every write is one call of one of the functions below. Once the server has the call, it runs to
-- its end even if the caller is gone. So a stopped or disconnected process never holds a lock.
-- All take locks in one order: writer, tenants, sessions, runs, claims.

-- The incarnation of the server that a packet written now needs. A packet that is not synced needs
-- this start of the server. One that a standby may lack needs this timeline.
create function capstan.incarnation(is_synced bool) returns text language sql stable as $$
  select case
    when is_synced and current_setting('synchronous_standby_names') <> '' then ''
    else substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
      || case when is_synced then ''
        else '/' || extract(epoch from pg_postmaster_start_time())::text end
  end
$$;

-- Whether packets of such an incarnation are certainly there.
create function capstan.survives(incarnation text) returns bool language sql stable as $$
  select incarnation in ('', substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
    capstan.incarnation(false))
$$;

-- Whether a writer connection of this lease may write. Share-locks its row.
create function capstan.may_write(me uuid, my_writer int) returns bool language plpgsql as $$
begin
  perform 1 from capstan.writers
    where replica = me and writer = my_writer and not fenced for share;
  return found;
end $$;

-- Begins a lease, and ends the earlier one of the same process, if it had one.
create function capstan.begin_lease(
  me uuid, earlier uuid, my_name text, my_url text, my_version text)
returns void language plpgsql as $$
begin
  if earlier is not null then perform capstan.end_lease(earlier); end if;
  insert into capstan.replicas
    values (me, my_name, my_url, my_version, clock_timestamp(), clock_timestamp(), 1)
    on conflict (id) do nothing;
  insert into capstan.writers select me, writer, false from generate_series(0, 3) writer
    on conflict do nothing;
end $$;

-- Ends a lease. When it returns, nothing more of that lease commits.
create function capstan.end_lease(of_replica uuid) returns void language plpgsql as $$
begin
  perform 1 from capstan.replicas where id = of_replica for update;
  update capstan.writers set fenced = true where replica = of_replica and not fenced;
  update capstan.replicas set state = 3 where id = of_replica;
end $$;

-- A heartbeat; false if the lease has ended.
create function capstan.heartbeat(
  me uuid, is_draining bool, open_responses bigint, p95_us bigint)
returns bool language plpgsql as $$
begin
  update capstan.replicas set heartbeat_at = clock_timestamp(),
      state = case when is_draining then 2 else 1 end,
      responses = open_responses, append_p95_us = p95_us
    where id = me and state < 3;
  return found;
end $$;

-- Ends one lease that has had no heartbeat for this long. Returns its id.
create function capstan.fence_expired(me uuid, lease_ms bigint) returns uuid
language plpgsql as $$
declare expired uuid;
begin
  select id into expired from capstan.replicas
    where id <> me and state < 3
      and heartbeat_at < clock_timestamp() - lease_ms * interval '1 millisecond'
    order by heartbeat_at limit 1 for update skip locked;
  if expired is not null then perform capstan.end_lease(expired); end if;
  delete from capstan.replicas r
    where state = 3 and heartbeat_at < clock_timestamp() - interval '1 day'
      and not exists (select 1 from capstan.runs where owner = r.id and state = 1);
  return expired;
end $$;

-- Takes over runs whose owner is gone. Also returns the runs that this process took over before
-- and that have not ended yet.
create function capstan.adopt_runs(me uuid, most int) returns setof uuid language plpgsql as $$
begin
  if not capstan.may_write(me, 3) then return; end if;
  return query update capstan.runs set owner = me, is_adopted = true where stream in (
    select r.stream from capstan.runs r left join capstan.replicas p on p.id = r.owner
      where r.state = 1
        and (p.id is null or p.state = 3 or (r.owner = me and r.is_adopted))
      order by r.stream limit most for update of r skip locked)
    returning stream;
end $$;

-- The window that counts at a time. An earlier window is over, but the next one counts already,
-- because the clocks of writers differ a little.
create function capstan.usage_window(counted bigint, now_is bigint) returns bigint
language sql immutable as $$
  select case when counted - now_is between 0 and 1 then counted else now_is end
$$;

-- The tokens used in the current window.
create function capstan.window_tokens(counted bigint, tokens bigint, now_is bigint)
returns bigint language sql immutable as $$
  select case when counted = capstan.usage_window(counted, now_is) then tokens else 0 end
$$;

-- Adds the tokens that an attempt has used. The row exists, and is locked.
create function capstan.add_tokens(of_tenant text, used bigint, at bigint) returns void
language sql as $$
  update capstan.tenants t set
    minute = capstan.usage_window(t.minute, at / 60000000),
    minute_tokens = least(
      capstan.window_tokens(t.minute, t.minute_tokens, at / 60000000)::numeric + used,
      9223372036854775807),
    day = capstan.usage_window(t.day, at / 86400000000),
    day_tokens = least(
      capstan.window_tokens(t.day, t.day_tokens, at / 86400000000)::numeric + used,
      9223372036854775807)
  where t.tenant = of_tenant
$$;

-- The token limit that a tenant has reached, 8 per minute or 9 per day, and for how many
-- microseconds. No row if it has tokens left.
create function capstan.token_wait(
  of_tenant text, at bigint, per_minute bigint, per_day bigint)
returns table (over_what int, wait_us bigint) language sql stable as $$
  select w.what, w.wait from capstan.tenants t, lateral (values
    (8, case when
        capstan.window_tokens(t.minute, t.minute_tokens, at / 60000000) >= per_minute
      then (capstan.usage_window(t.minute, at / 60000000) + 1) * 60000000 - at end),
    (9, case when capstan.window_tokens(t.day, t.day_tokens, at / 86400000000) >= per_day
      then (capstan.usage_window(t.day, at / 86400000000) + 1) * 86400000000 - at end))
    w(what, wait)
  where t.tenant = of_tenant and w.wait is not null order by w.wait desc, w.what limit 1
$$;

-- The usage of a tenant and of one session. Bytes need a read of each run, so they are optional.
create function capstan.usage_of(of_tenant text, of_session text, with_bytes bool)
returns table (running bigint, waiting bigint, sessions bigint, bytes bigint, has_session bool,
  messages bigint, session_bytes bigint)
language plpgsql as $$
declare it record;
begin
  select count(*) filter (where r.state = 1), count(*) filter (where r.state = 2),
      count(*) filter (where r.session = of_session),
      coalesce(sum(octet_length(r.body)) filter (where r.session = of_session), 0)
    into running, waiting, messages, session_bytes
    from capstan.runs r where r.tenant = of_tenant and r.state < 3;
  select count(*) into sessions from capstan.sessions s where s.tenant = of_tenant;
  select s.turn_count, s.bytes into it from capstan.sessions s
    where s.tenant = of_tenant and s.session = of_session;
  has_session := found;
  messages := messages + coalesce(it.turn_count, 0);
  session_bytes := session_bytes + coalesce(it.bytes, 0);
  bytes := 0;
  if with_bytes then
    select coalesce(sum(octet_length(r.body) + greatest(r.bytes, coalesce(b.total, 0))), 0)
      into bytes
      from capstan.runs r left join lateral (
        select b.total from capstan.blocks b
          where b.stream = r.stream order by b.last_seq desc limit 1) b on r.state = 1
      where r.tenant = of_tenant;
    bytes := bytes + coalesce(
      (select sum(s.bytes) from capstan.sessions s where s.tenant = of_tenant), 0);
  end if;
  return next;
end $$;

-- Writes claims, in the order of (tenant, key).
-- A claim reads only what its limits need: its session for itself, and the usage of its tenant once
-- for all claims of a group. Plans are made once, here and in `change_runs`. By default they would
-- be made again whenever the arrays change their length.
-- Outcomes: 0 another stream has the key, 1 new, 2 the answered questions are not open, 3 refused,
-- 9 the lease has ended.
create function capstan.claim_runs(
  me uuid, tenants text[], keys text[], streams uuid[], sessions text[], answers uuid[],
  bodies bytea[], records text[], turns_elsewhere bigint[], created_at bigint[],
  is_armed_by_gateway bool[], chats text[], body_hashes text[], ids text[], is_synced bool,
  per_minute int[], most_running bigint[], most_sessions bigint[], most_messages bigint[],
  most_session_bytes bigint[], most_bytes bigint[], tokens_per_minute bigint[],
  tokens_per_day bigint[])
returns table (
  nr int, outcome int, stream_id uuid, turns bigint, over_what int, wait_us bigint)
language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
  i int;
  existing record;
  it record;
  has_session bool;
  messages bigint;
  session_bytes bigint;
  -- The usage of the tenant whose claims are checked.
  counted text;
  running bigint;
  sessions_known bigint;
  bytes bigint;
  pace interval;
  until timestamptz;
  my_incarnation text := capstan.incarnation(is_synced);
begin
  if not capstan.may_write(me, 1) then
    return query select 0, 9, null::uuid, 0::bigint, 0, 0::bigint;
    return;
  end if;
  insert into capstan.tenants
    select distinct t.tenant from unnest(tenants, per_minute, most_running, most_sessions,
      most_messages, most_session_bytes, most_bytes, tokens_per_minute, tokens_per_day)
      t(tenant, a, b, c, d, e, f, g, h)
    where coalesce(t.a, t.b, t.c, t.d, t.e, t.f, t.g, t.h) is not null
    order by 1 on conflict do nothing;
  perform 1 from capstan.tenants t where t.tenant = any (tenants) order by t.tenant for update;
  perform 1 from capstan.sessions s
    where (s.tenant, s.session) in (select * from unnest(tenants, sessions))
    order by s.tenant, s.session for update;
  perform 1 from capstan.runs r where r.stream = any (answers) order by r.stream for update;
  for i in 1 .. coalesce(array_length(tenants, 1), 0) loop
    nr := i; outcome := 1; stream_id := streams[i]; turns := 0; over_what := 0; wait_us := 0;
    select c.stream, r.owner, r.turns_before into existing
      from capstan.claims c left join capstan.runs r on r.stream = c.stream
      where c.tenant = tenants[i] and c.key = keys[i];
    if found then
      -- It may be this claim's own row, if the answer to an earlier call was lost.
      stream_id := existing.stream;
      turns := coalesce(existing.turns_before, 0);
      outcome := case when existing.stream = streams[i] and existing.owner = me
        then 1 else 0 end;
      return next;
      continue;
    end if;
    if answers[i] is not null then
      perform 1 from capstan.runs r
        where r.stream = answers[i] and r.tenant = tenants[i] and r.session = sessions[i]
        and r.has_questions and r.answered_by is null;
      if not found then
        outcome := 2;
        return next;
        continue;
      end if;
    end if;
    if counted is distinct from tenants[i] then
      counted := tenants[i]; running := null; sessions_known := null; bytes := null;
    end if;
    if coalesce(most_sessions[i], most_messages[i], most_session_bytes[i]) is not null then
      select s.turn_count, s.bytes into it from capstan.sessions s
        where s.tenant = tenants[i] and s.session = sessions[i];
      has_session := found;
      select count(*) + coalesce(it.turn_count, 0),
          coalesce(sum(octet_length(r.body)), 0) + coalesce(it.bytes, 0)
        into messages, session_bytes
        from capstan.runs r
        where r.tenant = tenants[i] and r.session = sessions[i] and r.state < 3;
    end if;
    if running is null and most_running[i] is not null then
      select count(*) into running from capstan.runs r
        where r.tenant = tenants[i] and r.state = 1;
    end if;
    if sessions_known is null and most_sessions[i] is not null and not has_session then
      select count(*) into sessions_known from capstan.sessions s where s.tenant = tenants[i];
    end if;
    if bytes is null and most_bytes[i] is not null then
      select u.bytes into bytes from capstan.usage_of(tenants[i], sessions[i], true) u;
    end if;
    over_what := case
      when messages >= most_messages[i] then 5
      when session_bytes + octet_length(bodies[i]) > most_session_bytes[i] then 6
      when not has_session and sessions_known >= most_sessions[i] then 4
      when bytes + octet_length(bodies[i]) > most_bytes[i] then 7
      when running >= most_running[i] then 2
      else 0 end;
    if over_what = 0 and coalesce(tokens_per_minute[i], tokens_per_day[i]) is not null then
      select d.over_what, d.wait_us into over_what, wait_us
        from capstan.token_wait(
          tenants[i], created_at[i], tokens_per_minute[i], tokens_per_day[i]) d;
      over_what := coalesce(over_what, 0);
      wait_us := coalesce(wait_us, 0);
    end if;
    if over_what = 0 and per_minute[i] is not null then
      pace := interval '1 minute' / per_minute[i];
      select greatest(coalesce(t.rate_until, clock_timestamp()), clock_timestamp()) + pace
        into until from capstan.tenants t where t.tenant = tenants[i];
      wait_us := ceil(
        extract(epoch from until - clock_timestamp() - interval '1 minute') * 1000000);
      if wait_us > 0 then over_what := 1; else wait_us := 0; end if;
    end if;
    if over_what > 0 then
      outcome := 3;
      return next;
      continue;
    end if;
    insert into capstan.claims values (tenants[i], keys[i], streams[i], null)
      on conflict do nothing;
    if not found then
      -- Another process has committed this key since the lookup above.
      select c.stream into stream_id from capstan.claims c
        where c.tenant = tenants[i] and c.key = keys[i];
      outcome := 0;
      return next;
      continue;
    end if;
    if per_minute[i] is not null then
      update capstan.tenants t set rate_until = until where t.tenant = tenants[i];
    end if;
    if answers[i] is not null then
      update capstan.runs r set answered_by = streams[i] where r.stream = answers[i];
    end if;
    insert into capstan.sessions as s values (tenants[i], sessions[i], created_at[i])
      on conflict (tenant, session) do update
      set used_at = greatest(s.used_at, excluded.used_at)
      returning s.last_turn + turns_elsewhere[i] into turns;
    insert into capstan.runs (stream, tenant, key, session, state, attempt, owner,
        is_armed_by_gateway, turns_before, record, body, updated_at, incarnation, chat,
        body_hash, request_ids)
      values (streams[i], tenants[i], keys[i], sessions[i], 1, 1, me,
        is_armed_by_gateway[i], turns, records[i]::json, bodies[i], created_at[i],
        my_incarnation, chats[i], body_hashes[i], string_to_array(ids[i], E'\n'));
    running := running + 1;
    if not has_session then sessions_known := sessions_known + 1; end if;
    bytes := bytes + octet_length(bodies[i]);
    return next;
  end loop;
end $$;

-- Writes changes of state, in the order of their streams.
-- Outcomes: 0 another change was first, 1 done, 2 earlier packets are missing, 3 too many runs
-- wait, 4 there is no such run, 9 the lease has ended.
create function capstan.change_runs(
  me uuid, streams uuid[], changes uuid[], tenants text[], sessions text[], from_states int[],
  from_attempts int[], to_states int[], to_attempts int[], expected bigint[], records text[],
  last_seqs bigint[], totals bigint[], updated bigint[], closed bigint[], asked bool[],
  ids text[], turns text[], turns_at bigint[], most_waiting bigint[], tokens bigint[],
  is_synced bool, block_streams uuid[], block_seqs bigint[], block_totals bigint[],
  block_data bytea[])
returns table (nr int, outcome int)
language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
  i int;
  now_is record;
  last bigint;
  done uuid[] := '{}';
  next_turn bigint;
  my_incarnation text := capstan.incarnation(is_synced);
begin
  if not capstan.may_write(me, 2) then
    return query select 0, 9;
    return;
  end if;
  insert into capstan.tenants
    select distinct t.tenant from unnest(tenants, most_waiting, tokens) t(tenant, most, used)
    where t.most is not null or t.used > 0 order by 1 on conflict do nothing;
  perform 1 from capstan.tenants t where t.tenant in (
      select u.tenant from unnest(tenants, most_waiting, tokens) u(tenant, most, used)
        where u.most is not null or u.used > 0)
    order by t.tenant for update;
  perform 1 from capstan.sessions s where (s.tenant, s.session) in (
      select u.tenant, u.session from unnest(tenants, sessions, turns) u(tenant, session, turn)
        where u.turn is not null)
    order by s.tenant, s.session for update;
  for i in 1 .. coalesce(array_length(streams, 1), 0) loop
    nr := i;
    select r.state, r.attempt, r.owner, r.change, r.tenant, r.session into now_is
      from capstan.runs r where r.stream = streams[i] for update;
    if not found then
      outcome := 4;
      return next;
      continue;
    end if;
    if now_is.change = changes[i] then
      -- An earlier call, whose answer was lost, has done it.
      outcome := 1;
      return next;
      continue;
    end if;
    if now_is.state <> from_states[i] or now_is.attempt <> from_attempts[i]
        or now_is.state = 3
        or (now_is.state = 1 and now_is.owner is distinct from me) then
      outcome := 0;
      return next;
      continue;
    end if;
    select b.last_seq into last from capstan.blocks b
      where b.stream = streams[i] order by b.last_seq desc limit 1;
    if coalesce(last, 0) <> expected[i] then
      outcome := 2;
      return next;
      continue;
    end if;
    if most_waiting[i] is not null and to_states[i] = 2
        and (select count(*) from capstan.runs r
          where r.tenant = now_is.tenant and r.state = 2) >= most_waiting[i] then
      outcome := 3;
      return next;
      continue;
    end if;
    update capstan.runs r set state = to_states[i], attempt = to_attempts[i],
        change = changes[i], owner = case when to_states[i] = 1 then me end,
        is_adopted = false,
        is_stop_asked = r.is_stop_asked and now_is.state = 1 and to_states[i] = 1,
        has_questions = asked[i], record = records[i]::json, last_seq = last_seqs[i],
        bytes = totals[i], updated_at = updated[i], closed_at = closed[i],
        incarnation = my_incarnation, request_ids = string_to_array(ids[i], E'\n')
      where r.stream = streams[i];
    if turns[i] is not null then
      insert into capstan.sessions as s
        values (now_is.tenant, now_is.session, turns_at[i], 1, 1, octet_length(turns[i]))
        on conflict (tenant, session) do update
        set used_at = greatest(s.used_at, excluded.used_at), last_turn = s.last_turn + 1,
          turn_count = s.turn_count + 1, bytes = s.bytes + octet_length(turns[i])
        returning s.last_turn into next_turn;
      insert into capstan.turns
        values (now_is.tenant, now_is.session, next_turn, streams[i], turns[i]::json);
    end if;
    if tokens[i] > 0 then
      perform capstan.add_tokens(now_is.tenant, tokens[i], updated[i]);
    end if;
    done := done || streams[i];
    outcome := 1;
    return next;
  end loop;
  insert into capstan.blocks
    select b.* from unnest(block_streams, block_seqs, block_totals, block_data)
      b(stream, last_seq, total, data) where b.stream = any (done);
end $$;

-- Deletes closed streams. Their claims stay. Deletes their turns too, for an erasure on request.
create function capstan.delete_runs(streams uuid[], now_is bigint, with_turns bool)
returns setof uuid language plpgsql as $$
begin
  if with_turns then
    perform 1 from capstan.sessions s where (s.tenant, s.session) in (
        select r.tenant, r.session from capstan.runs r where r.stream = any (streams))
      order by s.tenant, s.session for update;
  end if;
  perform 1 from capstan.runs r
    where r.stream = any (streams) and r.state = 3 order by r.stream for update;
  return query with deleted as (
      delete from capstan.runs r where r.stream = any (streams) and r.state = 3
        returning r.stream, r.tenant, r.key),
    packets as (delete from capstan.blocks b using deleted where b.stream = deleted.stream),
    turns as (
      delete from capstan.turns t using deleted where with_turns and t.stream = deleted.stream
        returning t.tenant, t.session, octet_length(t.turn::text) as size),
    sessions as (
      update capstan.sessions s
        set turn_count = s.turn_count - sums.count, bytes = s.bytes - sums.size
        from (select turns.tenant, turns.session, count(*), sum(turns.size) as size
          from turns group by 1, 2) sums
        where s.tenant = sums.tenant and s.session = sums.session),
    claims as (
      update capstan.claims c set deleted_at = now_is from deleted
        where c.tenant = deleted.tenant and c.key = deleted.key)
    select deleted.stream from deleted;
end $$;

-- Deletes a session and its turns.
create function capstan.delete_session(of_tenant text, of_session text) returns bool
language plpgsql as $$
begin
  perform 1 from capstan.sessions where tenant = of_tenant and session = of_session for update;
  delete from capstan.turns where tenant = of_tenant and session = of_session;
  delete from capstan.sessions where tenant = of_tenant and session = of_session;
  return found;
end $$;

-- The host of a `no_store` tenant. If it has none, this process becomes its host if `may_host`.
-- States as in `replicas`. No row if it has no host.
create function capstan.host_of(me uuid, of_tenant text, may_host bool)
returns table (host uuid, host_url text, host_name text, host_state int)
language plpgsql as $$
begin
  loop
    select h.replica, p.url, p.name, coalesce(p.state, 3)
      into host, host_url, host_name, host_state
      from capstan.tenant_hosts h left join capstan.replicas p on p.id = h.replica
      where h.tenant = of_tenant;
    if found and host_state < 3 then
      return next;
      return;
    end if;
    if not may_host or not capstan.may_write(me, 3) then return; end if;
    insert into capstan.tenant_hosts as h values (of_tenant, me, clock_timestamp())
      on conflict (tenant) do update set replica = excluded.replica, since = excluded.since
      where h.replica = host;
  end loop;
end $$;

-- Moves the tenants of an earlier lease of this process to its new one. A tenant that has another
-- host by now stays there.
create function capstan.move_tenants(me uuid, earlier uuid) returns void language sql as $$
  update capstan.tenant_hosts set replica = me where replica = earlier
$$;

-- Records that a `no_store` tenant uses a key, as the claim of a deleted stream. So no process
-- starts a second run for it, even after the host is gone. Outcomes: 0 the returned stream has the
-- key, 1 recorded, 8 another process hosts the tenant, 9 the lease has ended.
create function capstan.record_key(
  me uuid, of_tenant text, of_key text, of_stream uuid, now_is bigint)
returns table (outcome int, holder uuid) language plpgsql as $$
begin
  if not capstan.may_write(me, 3) then
    return query select 9, null::uuid;
    return;
  end if;
  perform 1 from capstan.tenant_hosts h
    where h.tenant = of_tenant and h.replica = me for share;
  if not found then
    return query select 8, null::uuid;
    return;
  end if;
  insert into capstan.claims values (of_tenant, of_key, of_stream, now_is)
    on conflict do nothing;
  return query select case when c.stream = of_stream then 1 else 0 end, c.stream
    from capstan.claims c where c.tenant = of_tenant and c.key = of_key;
end $$;

-- Records that these runs have no reader in this process any more. Closed runs need no row.
create function capstan.mark_unread(me uuid, streams uuid[]) returns void language sql as $$
  update capstan.readers set left_at = clock_timestamp()
    where stream = any(streams) and replica = me;
  delete from capstan.readers m where m.stream = any(streams) and m.replica = me
    and not exists (
      select 1 from capstan.runs r where r.stream = m.stream and r.state < 3);
$$;

-- Whether other processes have readers of a run, and for how many milliseconds it has had none, if
-- it had one before.
create function capstan.remote_readers(me uuid, of_stream uuid)
returns table (is_read bool, unread_for bigint) language sql as $$
  select coalesce(bool_or(m.left_at is null and p.state < 3), false),
    (extract(epoch from clock_timestamp() - max(coalesce(m.left_at, p.heartbeat_at)))
      * 1000)::bigint
  from capstan.readers m join capstan.replicas p on p.id = m.replica
  where m.stream = of_stream and m.replica <> me
$$;

-- Records this process as a reader of a run, unless another process has one. Of several concurrent
-- calls one succeeds.
create function capstan.take_unread(me uuid, of_stream uuid) returns bool
language plpgsql as $$
begin
  perform pg_advisory_xact_lock(hashtextextended(of_stream::text, 8206372187466));
  if (select r.is_read from capstan.remote_readers(me, of_stream) r) then return false; end if;
  insert into capstan.readers values (of_stream, me, null)
    on conflict (stream, replica) do update set left_at = null;
  return true;
end $$;

-- Adds two arrays of counts, which may have different lengths.
create function capstan.add_counts(a bigint[], b bigint[]) returns bigint[]
language sql immutable as $$
  select array_agg(coalesce(u.x, 0) + coalesce(u.y, 0) order by u.at)
    from unnest(a, b) with ordinality u(x, y, at)
$$;
