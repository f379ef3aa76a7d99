-- setvalue stores a queue's value for a node of the session, which must be in the queue.
--   ARGV: session, queue, sequence, value
if not alive() then return ended end
local queue, seq = ARGV[2], ARGV[3]
if not owned(queue, self, seq) then return { err = 'DLOCKGONE the node is not in the queue' } end
local k = P .. 'k:' .. queue
if tonumber(redis.call('HGET', k, 'token') or 0) > tonumber(seq) then
  return { err = 'DLOCKSTALE a later contender has set a value' }
end
redis.call('HSET', k, 'token', seq, 'value', ARGV[4])
return 1
