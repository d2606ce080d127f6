-- What a journal is made of. A later file (0002_….sql) may only add to it: processes of the last version write beside the
-- next one's. A function that changes gets another number (`claim_2`), and the old one stays for them.
-- Times of day are microseconds by the writing process's clock; leases go by the database's own clock alone.

create table capstan.meta (
  one bool primary key default true check (one),
  schema int not null,
  -- Processes that know less than this schema must not write any more.
  min_writer int not null,
  secret bytea not null,
  -- Who keeps house, and until when nobody else does.
  sweeper uuid,
  sweeper_until timestamptz
);

-- A process, for as long as its lease holds without a break. States: 1 live, 2 draining, 3 gone.
create table capstan.replicas (
  id uuid primary key,
  name text not null,
  url text,
  version text not null,
  since timestamptz not null,
  seen_at timestamptz not null,
  state smallint not null,
  -- What it has to do, told with its signs of life: open responses, and how long 95 in a hundred of its latest appends took
  -- at most.
  responses bigint,
  append_p95_us bigint
) with (fillfactor = 50);

-- What each of its connections for writing share-locks in every statement. Whoever sets `fenced` knows that no later
-- statement of it commits. Nothing else ever changes such a row.
create table capstan.lanes (
  replica uuid not null references capstan.replicas on delete cascade,
  lane int not null,
  fenced bool not null default false,
  primary key (replica, lane)
);

create table capstan.claims (
  tenant text not null,
  key text not null,
  stream uuid not null,
  gone_at bigint,
  primary key (tenant, key)
);
create index claims_gone on capstan.claims (stream) where gone_at is not null;
create index claims_age on capstan.claims (gone_at) where gone_at is not null;

-- States: 1 running, 2 waiting, 3 closed. `last_seq` and `bytes` are as of the last change of state: what a running run
-- has written since, its last block knows. So nothing on an append's way updates a row.
create table capstan.runs (
  stream uuid primary key,
  tenant text not null,
  key text not null,
  session text not null,
  state smallint not null,
  attempt int not null,
  -- Who alone may change it while it runs.
  owner uuid,
  -- It was taken over from a process that is gone.
  is_adopted bool not null default false,
  is_stop_asked bool not null default false,
  -- It waits for a gateway, not for its client.
  is_unasked bool not null,
  -- It ended by asking.
  has_asked bool not null default false,
  answered_by uuid,
  turns_before bigint not null,
  record json not null,
  body bytea not null,
  last_seq bigint not null default 0,
  bytes bigint not null default 0,
  updated_at bigint not null,
  closed_at bigint,
  -- What an unsynced packet of it does not outlive; empty if there is none.
  life text not null,
  -- The last change of state, so that whoever lost the answer to it can tell.
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
create index runs_unasked on capstan.runs (stream) where state = 2 and is_unasked;
create index runs_closed on capstan.runs (closed_at, stream) where state = 3;

-- Packets of one append, as one piece that fits a page.
create table capstan.blocks (
  stream uuid not null,
  last_seq bigint not null,
  -- The bytes of all packets of the stream up to here.
  total bigint not null,
  data bytea not null,
  primary key (stream, last_seq)
) with (toast_tuple_target = 8160);
alter table capstan.blocks alter column data set storage external;

create table capstan.sessions (
  tenant text not null,
  session text not null,
  used_at bigint not null,
  -- The number of the last turn, how many are kept, and what they take.
  last_turn bigint not null default 0,
  kept bigint not null default 0,
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

-- Tenants that have a limit or use tokens: locked while a claim is measured, and while what they have used is counted.
-- Windows are minutes and days since 1970, by the clocks of the writing processes.
create table capstan.tenants (
  tenant text primary key,
  rate_until timestamptz,
  minute bigint not null default 0,
  minute_tokens bigint not null default 0,
  day bigint not null default 0,
  day_tokens bigint not null default 0
) with (fillfactor = 50);

-- Tenants of whom nothing may be stored live in the memory of one process. Where that is, and not a word of theirs.
create table capstan.homes (
  tenant text primary key,
  replica uuid not null,
  since timestamptz not null
);

-- Upstreams that failed too often, as whoever found it out last has said. A row changes with a breaker's state, not with a call.
create table capstan.breakers (
  upstream text primary key,
  -- How often in a row it has opened; 0 if it is closed.
  opened int not null,
  open_until timestamptz not null,
  change uuid not null
);

-- A run whose request had no key is stopped when nobody reads it any more, and a repeat may have it if nobody does. So who
-- reads one says so: a row for a run and a process, however many read it there. It counts as long as its process lives.
create table capstan.readers (
  stream uuid not null,
  replica uuid not null references capstan.replicas on delete cascade,
  -- When the last one left; nothing while somebody reads.
  left_at timestamptz,
  primary key (stream, replica)
) with (fillfactor = 70);

-- Until when somebody of a tenant was told to wait, whoever told it.
create table capstan.expected (
  tenant text primary key,
  until timestamptz not null
);

-- What was counted of runs that ended, by the hour. Counts of later builds come after those of earlier ones.
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

-- What a record is found by, for its indices, which ask twice whenever a run is written. In PL/pgSQL: a function in SQL is parsed
-- and planned each time that an index asks, and that was most of what a claim cost. Most records name no fault at all.
create function capstan.named_1(record json, member text) returns text[] language plpgsql immutable as $$
begin
  if strpos($1::text, '"' || $2 || '"') = 0 then return '{}'; end if;
  return (select coalesce(array_agg(distinct n.word), '{}') from (
    select $1 ->> $2 as word
    union all select a ->> $2 from json_array_elements(coalesce($1 -> 'attempts', '[]'::json)) a) n
  where n.word is not null);
end $$;

create function capstan.faults_1(record json) returns text[] language plpgsql immutable as $$
begin return capstan.named_1($1, 'fault'); end $$;

create function capstan.traces_1(record json) returns text[] language plpgsql immutable as $$
begin return capstan.named_1($1, 'trace_id'); end $$;

create index runs_fault on capstan.runs using gin (capstan.faults_1(record)) where capstan.faults_1(record) <> '{}';
create index runs_trace on capstan.runs using gin (capstan.traces_1(record)) where capstan.traces_1(record) <> '{}';

-- Every write is one call of one of these: once the server has it, it runs to its end whether or not the caller lives, so
-- that a process that was stopped or cut off never holds a lock that somebody waits for.
-- Locks are taken in one order: lane, tenants, sessions, runs, claims.

-- What an unsynced packet that is written now does not outlive: this very start of the server, and, where a standby
-- need not have it, this very server.
create function capstan.life_1(is_synced bool) returns text language sql stable as $$
  select case
    when is_synced and current_setting('synchronous_standby_names') <> '' then ''
    else substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
      || case when is_synced then '' else '/' || extract(epoch from pg_postmaster_start_time())::text end
  end
$$;

-- Whether what was written in such a life is still there.
create function capstan.is_alive_1(life text) returns bool language sql stable as $$
  select life in ('', substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), capstan.life_1(false))
$$;

create function capstan.is_free_1(me uuid, my_lane int) returns bool language plpgsql as $$
begin
  perform 1 from capstan.lanes where replica = me and lane = my_lane and not fenced for share;
  return found;
end $$;

-- Begins a lease, in the place of one that this process had and does not trust any more.
create function capstan.join_1(me uuid, was uuid, my_name text, my_url text, my_version text) returns void
language plpgsql as $$
begin
  if was is not null then perform capstan.leave_1(was); end if;
  insert into capstan.replicas values (me, my_name, my_url, my_version, clock_timestamp(), clock_timestamp(), 1)
    on conflict (id) do nothing;
  insert into capstan.lanes select me, lane, false from generate_series(0, 3) lane on conflict do nothing;
end $$;

-- Ends a lease. When it returns, nothing of that process commits any more.
create function capstan.leave_1(who uuid) returns void language plpgsql as $$
begin
  perform 1 from capstan.replicas where id = who for update;
  update capstan.lanes set fenced = true where replica = who and not fenced;
  update capstan.replicas set state = 3 where id = who;
end $$;

-- A sign of life; false if the lease is over.
create function capstan.pulse_1(me uuid, is_draining bool, open_responses bigint, p95_us bigint) returns bool language plpgsql as $$
begin
  update capstan.replicas set seen_at = clock_timestamp(), state = case when is_draining then 2 else 1 end,
      responses = open_responses, append_p95_us = p95_us
    where id = me and state < 3;
  return found;
end $$;

-- Ends the lease of one process that has given no sign of life for so long.
create function capstan.fence_1(me uuid, lease_ms bigint) returns uuid language plpgsql as $$
declare dead uuid;
begin
  select id into dead from capstan.replicas
    where id <> me and state < 3 and seen_at < clock_timestamp() - lease_ms * interval '1 millisecond'
    order by seen_at limit 1 for update skip locked;
  if dead is not null then perform capstan.leave_1(dead); end if;
  delete from capstan.replicas r where state = 3 and seen_at < clock_timestamp() - interval '1 day'
    and not exists (select 1 from capstan.runs where owner = r.id and state = 1);
  return dead;
end $$;

-- Takes over runs whose owner is gone, and tells again of those that this process took over and has not ended yet.
create function capstan.adopt_1(me uuid, most int) returns setof uuid language plpgsql as $$
begin
  if not capstan.is_free_1(me, 3) then return; end if;
  return query update capstan.runs set owner = me, is_adopted = true where stream in (
    select r.stream from capstan.runs r left join capstan.replicas p on p.id = r.owner
      where r.state = 1 and (p.id is null or p.state = 3 or (r.owner = me and r.is_adopted))
      order by r.stream limit most for update of r skip locked)
    returning stream;
end $$;

-- The window that counts at a time: what was counted in another one is over, but the next one counts, since clocks differ
-- a little.
create function capstan.window_1(counted bigint, now_is bigint) returns bigint language sql immutable as $$
  select case when counted - now_is between 0 and 1 then counted else now_is end
$$;

create function capstan.spent_1(counted bigint, tokens bigint, now_is bigint) returns bigint language sql immutable as $$
  select case when counted = capstan.window_1(counted, now_is) then tokens else 0 end
$$;

-- Counts what an attempt has used. The row is there, and locked.
create function capstan.spend_1(of_tenant text, used bigint, at bigint) returns void language sql as $$
  update capstan.tenants t set
    minute = capstan.window_1(t.minute, at / 60000000),
    minute_tokens = least(capstan.spent_1(t.minute, t.minute_tokens, at / 60000000)::numeric + used, 9223372036854775807),
    day = capstan.window_1(t.day, at / 86400000000),
    day_tokens = least(capstan.spent_1(t.day, t.day_tokens, at / 86400000000)::numeric + used, 9223372036854775807)
  where t.tenant = of_tenant
$$;

-- What keeps a tenant from more tokens, 8 the minute or 9 the day, and for how many microseconds from a time on; nothing if
-- some are left.
create function capstan.dry_1(of_tenant text, at bigint, per_minute bigint, per_day bigint)
returns table (over_what int, wait_us bigint) language sql stable as $$
  select w.what, w.wait from capstan.tenants t, lateral (values
    (8, case when capstan.spent_1(t.minute, t.minute_tokens, at / 60000000) >= per_minute
      then (capstan.window_1(t.minute, at / 60000000) + 1) * 60000000 - at end),
    (9, case when capstan.spent_1(t.day, t.day_tokens, at / 86400000000) >= per_day
      then (capstan.window_1(t.day, at / 86400000000) + 1) * 86400000000 - at end)) w(what, wait)
  where t.tenant = of_tenant and w.wait is not null order by w.wait desc, w.what limit 1
$$;

-- What a tenant has, and one session of it. Bytes cost a look at each run, so they are only counted where it matters.
create function capstan.usage_1(of_tenant text, of_session text, with_bytes bool)
returns table (running bigint, waiting bigint, sessions bigint, bytes bigint, has_session bool, messages bigint,
  session_bytes bigint)
language plpgsql as $$
declare it record;
begin
  select count(*) filter (where r.state = 1), count(*) filter (where r.state = 2),
      count(*) filter (where r.session = of_session),
      coalesce(sum(octet_length(r.body)) filter (where r.session = of_session), 0)
    into running, waiting, messages, session_bytes
    from capstan.runs r where r.tenant = of_tenant and r.state < 3;
  select count(*) into sessions from capstan.sessions s where s.tenant = of_tenant;
  select s.kept, s.bytes into it from capstan.sessions s where s.tenant = of_tenant and s.session = of_session;
  has_session := found;
  messages := messages + coalesce(it.kept, 0);
  session_bytes := session_bytes + coalesce(it.bytes, 0);
  bytes := 0;
  if with_bytes then
    select coalesce(sum(octet_length(r.body) + greatest(r.bytes, coalesce(b.total, 0))), 0) into bytes
      from capstan.runs r left join lateral (
        select b.total from capstan.blocks b where b.stream = r.stream order by b.last_seq desc limit 1) b on r.state = 1
      where r.tenant = of_tenant;
    bytes := bytes + coalesce((select sum(s.bytes) from capstan.sessions s where s.tenant = of_tenant), 0);
  end if;
  return next;
end $$;

-- Claims, in the order of (tenant, key). One costs what it asks about: its session is looked at for itself, and what a tenant
-- has is counted once for all of its claims in a group, and only if it is limited. Plans are made once, here and in
-- `change_1`: by default they are made anew whenever lists are longer or shorter than before.
-- Outcomes: 0 somebody else's, 1 new, 2 what it answers is not asked, 3 refused,
-- 9 this process's lease is over.
create function capstan.claim_1(
  me uuid, tenants text[], keys text[], streams uuid[], sessions text[], answers uuid[], bodies bytea[], records text[],
  turns_elsewhere bigint[], created_at bigint[], is_unasked bool[], chats text[], body_hashes text[], ids text[],
  is_synced bool,
  per_minute int[], most_running bigint[], most_sessions bigint[], most_messages bigint[], most_session_bytes bigint[],
  most_bytes bigint[], tokens_per_minute bigint[], tokens_per_day bigint[])
returns table (nr int, outcome int, stream_id uuid, turns bigint, over_what int, wait_us bigint)
language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
  i int;
  held record;
  it record;
  has_session bool;
  messages bigint;
  session_bytes bigint;
  -- Of the tenant whose claims are being made.
  counted text;
  running bigint;
  sessions_known bigint;
  bytes bigint;
  pace interval;
  until timestamptz;
  my_life text := capstan.life_1(is_synced);
begin
  if not capstan.is_free_1(me, 1) then
    return query select 0, 9, null::uuid, 0::bigint, 0, 0::bigint;
    return;
  end if;
  insert into capstan.tenants select distinct t.tenant from unnest(tenants, per_minute, most_running, most_sessions,
      most_messages, most_session_bytes, most_bytes, tokens_per_minute, tokens_per_day) t(tenant, a, b, c, d, e, f, g, h)
    where coalesce(t.a, t.b, t.c, t.d, t.e, t.f, t.g, t.h) is not null order by 1 on conflict do nothing;
  perform 1 from capstan.tenants t where t.tenant = any (tenants) order by t.tenant for update;
  perform 1 from capstan.sessions s where (s.tenant, s.session) in (select * from unnest(tenants, sessions))
    order by s.tenant, s.session for update;
  perform 1 from capstan.runs r where r.stream = any (answers) order by r.stream for update;
  for i in 1 .. coalesce(array_length(tenants, 1), 0) loop
    nr := i; outcome := 1; stream_id := streams[i]; turns := 0; over_what := 0; wait_us := 0;
    select c.stream, r.owner, r.turns_before into held from capstan.claims c left join capstan.runs r on r.stream = c.stream
      where c.tenant = tenants[i] and c.key = keys[i];
    if found then
      -- Its own, if the answer to an earlier call was lost.
      stream_id := held.stream;
      turns := coalesce(held.turns_before, 0);
      outcome := case when held.stream = streams[i] and held.owner = me then 1 else 0 end;
      return next;
      continue;
    end if;
    if answers[i] is not null then
      perform 1 from capstan.runs r where r.stream = answers[i] and r.tenant = tenants[i] and r.session = sessions[i]
        and r.has_asked and r.answered_by is null;
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
      select s.kept, s.bytes into it from capstan.sessions s where s.tenant = tenants[i] and s.session = sessions[i];
      has_session := found;
      select count(*) + coalesce(it.kept, 0), coalesce(sum(octet_length(r.body)), 0) + coalesce(it.bytes, 0)
        into messages, session_bytes
        from capstan.runs r where r.tenant = tenants[i] and r.session = sessions[i] and r.state < 3;
    end if;
    if running is null and most_running[i] is not null then
      select count(*) into running from capstan.runs r where r.tenant = tenants[i] and r.state = 1;
    end if;
    if sessions_known is null and most_sessions[i] is not null and not has_session then
      select count(*) into sessions_known from capstan.sessions s where s.tenant = tenants[i];
    end if;
    if bytes is null and most_bytes[i] is not null then
      select u.bytes into bytes from capstan.usage_1(tenants[i], sessions[i], true) u;
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
        from capstan.dry_1(tenants[i], created_at[i], tokens_per_minute[i], tokens_per_day[i]) d;
      over_what := coalesce(over_what, 0);
      wait_us := coalesce(wait_us, 0);
    end if;
    if over_what = 0 and per_minute[i] is not null then
      pace := interval '1 minute' / per_minute[i];
      select greatest(coalesce(t.rate_until, clock_timestamp()), clock_timestamp()) + pace into until
        from capstan.tenants t where t.tenant = tenants[i];
      wait_us := ceil(extract(epoch from until - clock_timestamp() - interval '1 minute') * 1000000);
      if wait_us > 0 then over_what := 1; else wait_us := 0; end if;
    end if;
    if over_what > 0 then
      outcome := 3;
      return next;
      continue;
    end if;
    insert into capstan.claims values (tenants[i], keys[i], streams[i], null) on conflict do nothing;
    if not found then
      -- Somebody committed it since it was looked for.
      select c.stream into stream_id from capstan.claims c where c.tenant = tenants[i] and c.key = keys[i];
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
      on conflict (tenant, session) do update set used_at = greatest(s.used_at, excluded.used_at)
      returning s.last_turn + turns_elsewhere[i] into turns;
    insert into capstan.runs (stream, tenant, key, session, state, attempt, owner, is_unasked, turns_before, record, body,
        updated_at, life, chat, body_hash, request_ids)
      values (streams[i], tenants[i], keys[i], sessions[i], 1, 1, me, is_unasked[i], turns, records[i]::json, bodies[i],
        created_at[i], my_life, chats[i], body_hashes[i], string_to_array(ids[i], E'\n'));
    running := running + 1;
    if not has_session then sessions_known := sessions_known + 1; end if;
    bytes := bytes + octet_length(bodies[i]);
    return next;
  end loop;
end $$;

-- Changes of state, in the order of their streams. Outcomes: 0 somebody was first, 1 done, 2 packets that come before are
-- missing, 3 too many wait, 4 no such run, 9 this process's lease is over.
create function capstan.change_1(
  me uuid, streams uuid[], changes uuid[], tenants text[], sessions text[], from_states int[], from_attempts int[],
  to_states int[], to_attempts int[], expected bigint[], records text[], last_seqs bigint[], totals bigint[],
  updated bigint[], closed bigint[], asked bool[], ids text[], turns text[], turns_at bigint[], most_waiting bigint[],
  tokens bigint[], is_synced bool,
  block_streams uuid[], block_seqs bigint[], block_totals bigint[], block_data bytea[])
returns table (nr int, outcome int) language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
  i int;
  now_is record;
  last bigint;
  done uuid[] := '{}';
  next_turn bigint;
  my_life text := capstan.life_1(is_synced);
begin
  if not capstan.is_free_1(me, 2) then
    return query select 0, 9;
    return;
  end if;
  insert into capstan.tenants select distinct t.tenant from unnest(tenants, most_waiting, tokens) t(tenant, most, used)
    where t.most is not null or t.used > 0 order by 1 on conflict do nothing;
  perform 1 from capstan.tenants t where t.tenant in (select u.tenant from unnest(tenants, most_waiting, tokens)
    u(tenant, most, used) where u.most is not null or u.used > 0) order by t.tenant for update;
  perform 1 from capstan.sessions s where (s.tenant, s.session) in
    (select u.tenant, u.session from unnest(tenants, sessions, turns) u(tenant, session, turn) where u.turn is not null)
    order by s.tenant, s.session for update;
  for i in 1 .. coalesce(array_length(streams, 1), 0) loop
    nr := i;
    select r.state, r.attempt, r.owner, r.change, r.tenant, r.session into now_is from capstan.runs r
      where r.stream = streams[i] for update;
    if not found then
      outcome := 4;
      return next;
      continue;
    end if;
    if now_is.change = changes[i] then
      -- It was done by an earlier call whose answer was lost.
      outcome := 1;
      return next;
      continue;
    end if;
    if now_is.state <> from_states[i] or now_is.attempt <> from_attempts[i] or now_is.state = 3
        or (now_is.state = 1 and now_is.owner is distinct from me) then
      outcome := 0;
      return next;
      continue;
    end if;
    select b.last_seq into last from capstan.blocks b where b.stream = streams[i] order by b.last_seq desc limit 1;
    if coalesce(last, 0) <> expected[i] then
      outcome := 2;
      return next;
      continue;
    end if;
    if most_waiting[i] is not null and to_states[i] = 2
        and (select count(*) from capstan.runs r where r.tenant = now_is.tenant and r.state = 2) >= most_waiting[i] then
      outcome := 3;
      return next;
      continue;
    end if;
    update capstan.runs r set state = to_states[i], attempt = to_attempts[i], change = changes[i],
        owner = case when to_states[i] = 1 then me end, is_adopted = false,
        is_stop_asked = r.is_stop_asked and now_is.state = 1 and to_states[i] = 1,
        has_asked = asked[i], record = records[i]::json, last_seq = last_seqs[i], bytes = totals[i],
        updated_at = updated[i], closed_at = closed[i], life = my_life,
        request_ids = string_to_array(ids[i], E'\n')
      where r.stream = streams[i];
    if turns[i] is not null then
      insert into capstan.sessions as s values (now_is.tenant, now_is.session, turns_at[i], 1, 1, octet_length(turns[i]))
        on conflict (tenant, session) do update set used_at = greatest(s.used_at, excluded.used_at),
          last_turn = s.last_turn + 1, kept = s.kept + 1, bytes = s.bytes + octet_length(turns[i])
        returning s.last_turn into next_turn;
      insert into capstan.turns values (now_is.tenant, now_is.session, next_turn, streams[i], turns[i]::json);
    end if;
    if tokens[i] > 0 then perform capstan.spend_1(now_is.tenant, tokens[i], updated[i]); end if;
    done := done || streams[i];
    outcome := 1;
    return next;
  end loop;
  insert into capstan.blocks select b.* from unnest(block_streams, block_seqs, block_totals, block_data)
    b(stream, last_seq, total, data) where b.stream = any (done);
end $$;

-- Deletes closed streams; their claims stay. With their turns, if they are erased on request.
create function capstan.retire_1(streams uuid[], gone_time bigint, with_turns bool) returns setof uuid language plpgsql as $$
begin
  if with_turns then
    perform 1 from capstan.sessions s where (s.tenant, s.session) in
      (select r.tenant, r.session from capstan.runs r where r.stream = any (streams)) order by s.tenant, s.session for update;
  end if;
  perform 1 from capstan.runs r where r.stream = any (streams) and r.state = 3 order by r.stream for update;
  return query with gone as (
      delete from capstan.runs r where r.stream = any (streams) and r.state = 3 returning r.stream, r.tenant, r.key),
    packets as (delete from capstan.blocks b using gone where b.stream = gone.stream),
    said as (delete from capstan.turns t using gone where with_turns and t.stream = gone.stream
      returning t.tenant, t.session, octet_length(t.turn::text) as size),
    less as (update capstan.sessions s set kept = s.kept - said.count, bytes = s.bytes - said.size from
      (select said.tenant, said.session, count(*), sum(said.size) as size from said group by 1, 2) said
      where s.tenant = said.tenant and s.session = said.session),
    kept as (update capstan.claims c set gone_at = gone_time from gone where c.tenant = gone.tenant and c.key = gone.key)
    select gone.stream from gone;
end $$;

-- Deletes sessions and their turns.
create function capstan.forget_1(of_tenant text, of_session text) returns bool language plpgsql as $$
begin
  perform 1 from capstan.sessions where tenant = of_tenant and session = of_session for update;
  delete from capstan.turns where tenant = of_tenant and session = of_session;
  delete from capstan.sessions where tenant = of_tenant and session = of_session;
  return found;
end $$;

-- Where such a tenant lives: here from now on, if it lives nowhere and may move in. States as of replicas; no row if it
-- lives nowhere.
create function capstan.home_1(me uuid, of_tenant text, may_move_in bool)
returns table (home uuid, home_url text, home_name text, home_state int) language plpgsql as $$
declare is_known bool;
begin
  loop
    select h.replica, p.url, p.name, coalesce(p.state, 3) into home, home_url, home_name, home_state
      from capstan.homes h left join capstan.replicas p on p.id = h.replica where h.tenant = of_tenant;
    is_known := found;
    if is_known and home_state < 3 then
      return next;
      return;
    end if;
    if not may_move_in or not capstan.is_free_1(me, 3) then return; end if;
    insert into capstan.homes as h values (of_tenant, me, clock_timestamp())
      on conflict (tenant) do update set replica = excluded.replica, since = excluded.since where h.replica = home;
  end loop;
end $$;

-- A process that begins another lease takes along those who lived with it, unless they have moved since.
create function capstan.follow_1(me uuid, was uuid) returns void language sql as $$
  update capstan.homes set replica = me where replica = was
$$;

-- Notes that a key of such a tenant is taken, as of a run of which nothing is kept: so nobody starts a second one, whatever
-- becomes of the process. Outcomes: 0 it was taken by the stream that is told, 1 noted, 8 the tenant does not live here, 9 this
-- process's lease is over.
create function capstan.note_1(me uuid, of_tenant text, of_key text, of_stream uuid, now_is bigint)
returns table (outcome int, holder uuid) language plpgsql as $$
begin
  if not capstan.is_free_1(me, 3) then
    return query select 9, null::uuid;
    return;
  end if;
  perform 1 from capstan.homes h where h.tenant = of_tenant and h.replica = me for share;
  if not found then
    return query select 8, null::uuid;
    return;
  end if;
  insert into capstan.claims values (of_tenant, of_key, of_stream, now_is) on conflict do nothing;
  return query select case when c.stream = of_stream then 1 else 0 end, c.stream
    from capstan.claims c where c.tenant = of_tenant and c.key = of_key;
end $$;

-- Nobody reads these here any more. Of a run that is over nothing has to be kept.
create function capstan.unread_1(me uuid, streams uuid[]) returns void language sql as $$
  update capstan.readers set left_at = clock_timestamp() where stream = any(streams) and replica = me;
  delete from capstan.readers m where m.stream = any(streams) and m.replica = me
    and not exists (select 1 from capstan.runs r where r.stream = m.stream and r.state < 3);
$$;

-- Whether somebody reads a run elsewhere, and for how many milliseconds nobody has, if anybody did.
create function capstan.read_1(me uuid, of_stream uuid) returns table (is_read bool, unread_for bigint) language sql as $$
  select coalesce(bool_or(m.left_at is null and p.state < 3), false),
    (extract(epoch from clock_timestamp() - max(coalesce(m.left_at, p.seen_at))) * 1000)::bigint
  from capstan.readers m join capstan.replicas p on p.id = m.replica where m.stream = of_stream and m.replica <> me
$$;

-- It is read here from now on, unless it is elsewhere: of several that ask at once, one gets it.
create function capstan.take_1(me uuid, of_stream uuid) returns bool language plpgsql as $$
begin
  perform pg_advisory_xact_lock(hashtextextended(of_stream::text, 8206372187466));
  if (select r.is_read from capstan.read_1(me, of_stream) r) then return false; end if;
  insert into capstan.readers values (of_stream, me, null) on conflict (stream, replica) do update set left_at = null;
  return true;
end $$;

create function capstan.sum_1(a bigint[], b bigint[]) returns bigint[] language sql immutable as $$
  select array_agg(coalesce(u.x, 0) + coalesce(u.y, 0) order by u.at) from unnest(a, b) with ordinality u(x, y, at)
$$;
