-- watchqueue makes the store tell the session of the next change of a queue. It returns
-- the members as look does. If nobody takes the lock for an hour, the store forgets the
-- watch, because its session looks again, too.   ARGV: session, queue
if not alive() then return ended end
watch(ARGV[2], '', self)
local members = redis.call('ZRANGE', P .. 'q:' .. ARGV[2], 0, -1)
if #members == 0 then redis.call('PEXPIRE', P .. 'w:' .. ARGV[2], 3600000) end
return brief(members, #members)
