-- The beginning of every script.
--   KEYS[1]  "{namespace}:seq"; all other keys begin with "{namespace}:", too
--   ARGV[1]  the session that makes the request
local P = string.sub(KEYS[1], 1, -4)
local self = ARGV[1]

-- owned returns the member for the session's node with that sequence, and the node's name
-- and operation.
local function owned(queue, session, seq)
  for _, m in ipairs(redis.call('ZRANGEBYSCORE', P .. 'q:' .. queue, seq, seq)) do
    local name, owner, op = string.match(m, '^([^/]*)/([^/]*)/([^/]*)/')
    if owner == session then return m, name, op end
  end
  return nil
end

