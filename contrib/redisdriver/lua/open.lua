-- open begins a session.   ARGV: session, timeout in microseconds
expire()
redis.call('ZADD', sessions, now + ARGV[2], self)
return 1
