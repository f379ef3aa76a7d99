package dlocktest

import (
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var describeSabotages = []sabotage{
	{"describes its timeout in the wrong unit", "a number of milliseconds from the store, converted to time.Duration as it is",
		describing(func(i *driver.SessionInfo) { i.Timeout /= time.Millisecond })},
	{"describes the timeout that it has asked for", "a store with an upper limit for session timeouts, as ZooKeeper has",
		describing(func(i *driver.SessionInfo) { i.Timeout = time.Hour })},
	{"describes all sessions of a client by one id", "the name of the client in place of the id of the session",
		describing(func(i *driver.SessionInfo) { i.ID = "web1" })},
	{"describes each connection by an id of its own", "the id of the connection in place of that of the session",
		func(s *faulty) {
			var n atomic.Int64
			s.describe = func(i *driver.SessionInfo) { i.ID += string(rune('a' + n.Add(1))) }
		}},
	{"reports what a heartbeat has left after the renewal", "a lease that reports its term in place of the rest",
		func(s *faulty) {
			s.heartbeat = func(f func(left, term time.Duration)) bool {
				return s.base.OnHeartbeat(func(_, term time.Duration) { f(term, term) })
			}
		}},
	{"offers heartbeats and reports none", "a session that wraps another one, and forgets to pass the function on",
		func(s *faulty) { s.heartbeat = func(func(left, term time.Duration)) bool { return true } }},
}

func describing(change func(*driver.SessionInfo)) plant {
	return func(s *faulty) { s.describe = change }
}
