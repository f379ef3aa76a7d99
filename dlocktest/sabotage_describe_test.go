package dlocktest

import (
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var describeSabotages = []sabotage{
	{"describes its timeout in the wrong unit", "a number of milliseconds from the store, converted to time.Duration as it is",
		of(func(s base) *misdescribed {
			return &misdescribed{s, func(i *driver.SessionInfo) { i.Timeout /= time.Millisecond }}
		})},
	{"describes the timeout that it has asked for", "a store with an upper limit for session timeouts, as ZooKeeper has",
		of(func(s base) *misdescribed {
			return &misdescribed{s, func(i *driver.SessionInfo) { i.Timeout = time.Hour }}
		})},
	{"describes all sessions of a client by one id", "the name of the client in place of the id of the session",
		of(func(s base) *misdescribed {
			return &misdescribed{s, func(i *driver.SessionInfo) { i.ID = "web1" }}
		})},
	{"describes each connection by an id of its own", "the id of the connection in place of that of the session",
		of(func(s base) *misdescribed {
			var n atomic.Int64
			return &misdescribed{s, func(i *driver.SessionInfo) { i.ID += string(rune('a' + n.Add(1))) }}
		})},
	{"reports what a heartbeat has left after the renewal", "a lease that reports its term in place of the rest",
		of(func(s base) *misreported { return &misreported{s} })},
	{"offers heartbeats and reports none", "a session that wraps another one, and forgets to pass the function on",
		of(func(s base) *unreported { return &unreported{s} })},
}

type misdescribed struct {
	base
	change func(*driver.SessionInfo)
}

type misreported struct{ base }

func (s *misreported) OnHeartbeat(f func(left, term time.Duration)) bool {
	return s.base.OnHeartbeat(func(_, term time.Duration) { f(term, term) })
}

type unreported struct{ base }

func (s *unreported) OnHeartbeat(func(left, term time.Duration)) bool { return true }

func (s *misdescribed) Describe() driver.SessionInfo {
	info := s.base.Describe()
	s.change(&info)
	return info
}
