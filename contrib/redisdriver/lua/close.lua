-- close removes a session and its nodes.   ARGV: session
drop(self)
return 1
