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
create function capstan.pulse_1(me uuid, is_draining bool) returns bool language plpgsql as $$
begin
  update capstan.replicas set seen_at = clock_timestamp(), state = case when is_draining then 2 else 1 end
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

-- Changes of state, in the order of their streams. Outcomes: 0 somebody was first, 1 done, 2 packets that come before are
-- missing, 3 too many wait, 4 no such run, 9 this process's lease is over.
create function capstan.change_1(
  me uuid, streams uuid[], changes uuid[], tenants text[], sessions text[], from_states int[], from_attempts int[],
  to_states int[], to_attempts int[], expected bigint[], records text[], last_seqs bigint[], totals bigint[],
  updated bigint[], closed bigint[], asked bool[], ids text[], turns text[], turns_at bigint[], most_waiting bigint[],
  tokens bigint[], is_synced bool,
  block_streams uuid[], block_seqs bigint[], block_totals bigint[], block_data bytea[])
returns table (nr int, outcome int) language plpgsql as $$
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
