-- watchqueue makes the store tell the session of the next change of a queue. It returns
-- the members as look does.   ARGV: session, queue
if not alive() then return ended end
watch(ARGV[2], '', self)
local members = redis.call('ZRANGE', P .. 'q:' .. ARGV[2], 0, -1)
return brief(members, #members)
