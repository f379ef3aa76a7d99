-- cancel removes the nodes of creates. If such a create has not come yet, it will make no
-- node.   ARGV: session, operations...
if not alive() then return ended end
local s = P .. 's:' .. self
for i = 2, #ARGV do
  local op = ARGV[i]
  local queue, member, name = made(self, redis.call('HGET', s, op))
  if queue then
    if member then redis.call('ZREM', P .. 'q:' .. queue, member) end
    redis.call('HDEL', s, op) -- a create comes once, so it needs no mark any more
    if member then gone(queue, name, 'c') end
  else
    redis.call('HSET', s, op, '-')
  end
end
return 1
