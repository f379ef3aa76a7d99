-- watchqueue makes the store tell the session of the queue's next change. It returns the
-- members as look does. If the queue stays empty for an hour, the store forgets the
-- watch, which is safe because the session also looks on its own.   ARGV: session, queue
if not alive() then return ended end
watch(ARGV[2], '', self)
local members = redis.call('ZRANGE', P .. 'q:' .. ARGV[2], 0, -1)
if #members == 0 then redis.call('PEXPIRE', P .. 'w:' .. ARGV[2], 3600000) end
return brief(members, #members)
