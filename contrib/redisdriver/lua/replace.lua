-- replace gives a node of the session another prefix. It returns the old name.
-- ARGV: session, queue, sequence, prefix
if not alive() then return ended end
local queue, seq = ARGV[2], ARGV[3]
local q = P .. 'q:' .. queue
local member, name = owned(queue, self, seq)
if not member then return { err = 'DLOCKGONE the node is not in the queue' } end
local new = ARGV[4] .. string.match(name, '%d+$')
if new ~= name then
  -- In this order: if the server ends the script in the middle, the node is still there.
  redis.call('ZADD', q, seq, new .. string.sub(member, #name + 1))
  redis.call('ZREM', q, member)
  gone(queue, name, 'c')
end
return name
