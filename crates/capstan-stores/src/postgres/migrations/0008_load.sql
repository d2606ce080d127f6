-- What each process has to do, told with its signs of life. Nothing of one whose build tells nothing.
alter table capstan.replicas
  -- Open responses.
  add column responses bigint,
  -- 95 in a hundred of its latest appends took no longer.
  add column append_p95_us bigint;

-- A sign of life; false if the lease is over.
create function capstan.pulse_2(me uuid, is_draining bool, open_responses bigint, p95_us bigint) returns bool language plpgsql as $$
begin
  update capstan.replicas set seen_at = clock_timestamp(), state = case when is_draining then 2 else 1 end,
      responses = open_responses, append_p95_us = p95_us
    where id = me and state < 3;
  return found;
end $$;
