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
