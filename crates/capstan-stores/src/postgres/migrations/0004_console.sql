-- For whoever looks through the runs of all tenants: by fault, and by trace. Both are made from the record itself, so that
-- runs of earlier builds, and of those that still write beside this one, are found as well.

create function capstan.faults_1(record json) returns text[] language sql immutable as $$
  select coalesce(array_agg(distinct f.code), '{}') from (
    select record ->> 'fault' as code
    union all select a ->> 'fault' from json_array_elements(coalesce(record -> 'attempts', '[]'::json)) a) f
  where f.code is not null
$$;

create function capstan.traces_1(record json) returns text[] language sql immutable as $$
  select coalesce(array_agg(distinct t.id), '{}') from (
    select record ->> 'trace_id' as id
    union all select a ->> 'trace_id' from json_array_elements(coalesce(record -> 'attempts', '[]'::json)) a) t
  where t.id is not null
$$;

create index runs_fault on capstan.runs using gin (capstan.faults_1(record)) where capstan.faults_1(record) <> '{}';
create index runs_trace on capstan.runs using gin (capstan.traces_1(record)) where capstan.traces_1(record) <> '{}';

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

create function capstan.sum_1(a bigint[], b bigint[]) returns bigint[] language sql immutable as $$
  select array_agg(coalesce(u.x, 0) + coalesce(u.y, 0) order by u.at) from unnest(a, b) with ordinality u(x, y, at)
$$;
