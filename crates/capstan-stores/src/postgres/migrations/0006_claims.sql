-- A claim costs what it asks about: its session is looked at for itself, and what a tenant has is counted once for all of its
-- claims in a group, and only if it is limited. A tenant may have a million sessions. Plans are made once.

-- Claims, in the order of (tenant, key). Outcomes: 0 somebody else's, 1 new, 2 what it answers is not asked, 3 refused,
-- 9 this process's lease is over.
create or replace function capstan.claim_1(
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

-- As above: by default the statements of a step are planned anew whenever lists are longer or shorter than before.
alter function capstan.change_1 set plan_cache_mode = force_generic_plan;

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

create or replace function capstan.faults_1(record json) returns text[] language plpgsql immutable as $$
begin return capstan.named_1($1, 'fault'); end $$;

create or replace function capstan.traces_1(record json) returns text[] language plpgsql immutable as $$
begin return capstan.named_1($1, 'trace_id'); end $$;
