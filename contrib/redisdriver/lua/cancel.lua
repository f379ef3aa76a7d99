-- cancel removes the nodes that the given operations created. If such an operation
-- arrives only later, it creates no node.   ARGV: session, operations...
if not alive() then return ended end
local s = P .. 's:' .. self
for i = 2, #ARGV do
  local op = ARGV[i]
  local queue, member, name = made(self, redis.call('HGET', s, op))
  if queue then
    if member then redis.call('ZREM', P .. 'q:' .. queue, member) end
    redis.call('HDEL', s, op) -- no other create has this operation, so no mark is needed
    if member then gone(queue, name, 'c') end
  else
    redis.call('HSET', s, op, '-')
  end
end
return 1
