-- Tenants of whom nothing may be stored live in the memory of one process. Where that is, and not a word of theirs.
create table capstan.homes (
  tenant text primary key,
  replica uuid not null,
  since timestamptz not null
);

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

-- Upstreams that failed too often, as whoever found it out last has said. A row changes with a breaker's state, not with a call.
create table capstan.breakers (
  upstream text primary key,
  -- How often in a row it has opened; 0 if it is closed.
  opened int not null,
  open_until timestamptz not null,
  change uuid not null
);
