package work

import (
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// zkLock opens a connection for go-zookeeper's lock, which cannot be shared or
// tried. It waits until the session exists, because zk.Lock fails before that.
func zkLock(p Plan) (session, error) {
	conn, events, err := zk.Connect(strings.Split(p.Server, ","), time.Duration(p.Timeout)*time.Second, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	limit := time.After(30 * time.Second)
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return zkLockSession{conn}, nil
			}
		case <-limit:
			conn.Close()
			return nil, errors.New("bench: no session with ZooKeeper")
		}
	}
}

type zkLockSession struct{ conn *zk.Conn }

func (s zkLockSession) contender(path string) (contender, error) {
	return zkLockContender{zk.NewLock(s.conn, path, zk.WorldACL(zk.PermAll))}, nil
}

func (s zkLockSession) close() error { s.conn.Close(); return nil }

type zkLockContender struct{ l *zk.Lock }

func (c zkLockContender) lock() error   { return c.l.Lock() }
func (c zkLockContender) unlock() error { return c.l.Unlock() }
