-- cancel removes the node of a create. If that create has not come yet, it will make no
-- node.   ARGV: session, operation
if not alive() then return ended end
local s = P .. 's:' .. self
local seq, queue = string.match(redis.call('HGET', s, ARGV[2]) or '', '^(%d+)/(.*)$')
redis.call('HSET', s, ARGV[2], '-')
local member, name
if seq then member, name = owned(queue, self, seq) end
if member then
  redis.call('ZREM', P .. 'q:' .. queue, member)
  gone(queue, name, 'c')
end
return 1
