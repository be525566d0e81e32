-- The job that took each unique key last. Keys change when jobs are stored, and go with their jobs.
-- See docs/adr/018-unique-jobs.md.
create table unique_key (
    fp bytea primary key,
    seq bigint not null
);
create index unique_key_seq on unique_key (seq);

-- Returns what is wrong with a job by the rules of POST /ojs/v1/jobs, or null.
create or replace function outlast.problem(job jsonb) returns text
language plpgsql stable parallel safe as $$
declare
    given jsonb;
    bytes integer;
begin
    if job is null or jsonb_typeof(job) <> 'object' then
        return 'a job must be an object';
    end if;
    bytes := octet_length(job::text);
    if bytes > 1048576 then
        return format('the job is %s bytes long; at most 1048576 are taken', bytes);
    end if;
    if bytes > 128 and jsonb_path_exists(job,
        'strict $.**{64} ? (@.type() == "object" || @.type() == "array")')
    then
        return 'the job is nested more than 64 levels deep';
    end if;
    given := nullif(job -> 'type', 'null');
    if given is null then
        return 'field `type` is missing';
    elsif jsonb_typeof(given) <> 'string' then
        return 'field `type` must be a text';
    elsif octet_length(given #>> '{}') > 255 or given #>> '{}' !~ '^[a-z][a-z0-9_-]*([.][a-z0-9][a-z0-9_-]*)*$'
    then
        return 'field `type` must be lower-case words joined by dots, such as `email.send`';
    end if;
    given := nullif(job -> 'args', 'null');
    if given is null then
        return 'field `args` is missing';
    elsif jsonb_typeof(given) <> 'array' then
        return 'field `args` must be an array';
    end if;
    if jsonb_typeof(nullif(job -> 'meta', 'null')) <> 'object' then
        return 'field `meta` must be an object';
    end if;
    if not outlast.is_id(nullif(job -> 'id', 'null')) then
        return 'field `id` must be a UUIDv7 in lower case';
    end if;
    if jsonb_typeof(nullif(job -> 'options', 'null')) <> 'object' then
        return 'field `options` must be an object';
    end if;
    if outlast.wish(job, 'rate_limit') is not null then
        return 'field `rate_limit` is not supported by this server';
    end if;
    if outlast.wish(job, 'unique') is not null then
        return 'field `unique` is not supported for jobs that are stored by SQL';
    end if;
    given := outlast.wish(job, 'queue');
    if jsonb_typeof(given) <> 'string' then
        return 'field `queue` must be a text';
    elsif octet_length(given #>> '{}') > 255 or given #>> '{}' !~ '^[a-z0-9][a-z0-9._-]*$' then
        return 'field `queue` must be lower-case letters, digits, `-`, `_` and `.`, '
            || 'starting with a letter or digit';
    end if;
    given := outlast.wish(job, 'priority');
    if jsonb_typeof(given) <> 'number' or given #>> '{}' !~ '^-?[0-9]{1,3}$'
        or (given #>> '{}')::integer not between -100 and 100
    then
        return 'field `priority` must be a whole number from -100 to 100';
    end if;
    if outlast.wish(job, 'overlap') not in ('"allowed"', '"forbidden"') then
        return 'field `overlap` must be `allowed` or `forbidden`';
    end if;
    if jsonb_typeof(outlast.wish(job, 'pending')) <> 'boolean' then
        return 'field `pending` must be true or false';
    end if;
    given := outlast.wish(job, 'retry');
    return coalesce(outlast.time_problem(job), outlast.keys_problem(outlast.wish(job, 'keys')),
        outlast.selector_problem('requires', outlast.wish(job, 'requires')),
        outlast.selector_problem('prefers', outlast.wish(job, 'prefers')),
        case when outlast.wish(job, 'pending') = 'true' and coalesce(
            outlast.wish(job, 'scheduled_at'), outlast.wish(job, 'delay_until'),
            outlast.wish(job, 'delay_ms'), outlast.wish(job, 'delay')) is not null
        then
            'field `pending` must be left out of a job with a time: it runs once it is activated'
        end,
        case when given is not null then outlast.retry_problem(given) end);
end $$;
