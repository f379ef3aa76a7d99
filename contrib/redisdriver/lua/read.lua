-- read returns the member for a node.   ARGV: session, queue, name
if not alive() then return ended end
return find(ARGV[2], ARGV[3]) or { err = 'DLOCKGONE the node is not in the queue' }
