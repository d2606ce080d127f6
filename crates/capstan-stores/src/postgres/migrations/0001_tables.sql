-- What a journal is made of. Later files may only add to it: processes of the last version write beside the next one's.
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
  state smallint not null
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
