-- watchqueue makes the store tell the session of the next change of a queue.
-- ARGV: session, queue
if not alive() then return ended end
watch(ARGV[2], '', self)
return 1
