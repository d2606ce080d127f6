-- Made up for tests: a release that adds what processes of the last one know nothing of.
alter table capstan.runs add column mood text not null default 'calm';
create index runs_mood on capstan.runs (tenant, mood);
create table capstan.moods (mood text primary key);
create function capstan.notice_mood() returns trigger language plpgsql as $$
begin
  insert into capstan.moods values (new.mood) on conflict do nothing;
  return new;
end $$;
create trigger mood after insert on capstan.runs for each row execute function capstan.notice_mood();
