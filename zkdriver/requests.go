package zkdriver

import (
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
)

// Every request goes through ask, so that its answer counts for the lease and none that means
// the end of the session goes unnoticed.

// reach says who has a part in the answer to a request.
type reach int

const (
	toServer reach = iota // a read: the server answers by itself
	toLeader              // a Sync: its leader answers, or whoever takes itself for that
	toQuorum              // a write: the leader answers when most servers have taken it down
)

func (s *session) ask(p reach, request func() error) error { return s.track(p, false, request) }

func (s *session) track(p reach, isHeartbeat bool, request func() error) error {
	connection := s.keepalive.connection()
	sent := s.lease.Now()
	if err := s.lease.Err(); err != nil {
		return err
	}
	err := request()
	// A refusal, too, is an answer of the server, but not all of them come from the leader.
	if err == nil || !Unanswered(err) {
		if err != nil {
			p = toServer
		}
		s.keepalive.answered(connection, p, sent, s.lease.Now(), isHeartbeat)
		s.dialer.resetBackOff()
	}
	switch {
	case errors.Is(err, zk.ErrSessionExpired):
		s.end(errExpired)
	case errors.Is(err, zk.ErrSessionMoved), errors.Is(err, zk.ErrAuthFailed):
		s.end(err)
	default:
		return err
	}
	return s.lease.Err()
}

func (s *session) sync(path string) error {
	return s.ask(toLeader, func() error { _, err := s.conn.Sync(path); return err })
}

// prove sends a transaction that changes nothing.
func (s *session) prove() error { return s.ask(toQuorum, s.check) }

func (s *session) check() error {
	_, err := s.conn.Multi(&zk.CheckVersionRequest{Path: "/", Version: -1})
	if errors.Is(err, zk.ErrNoAuth) {
		return nil // an answer of the leader's, which goes the way of a transaction too
	}
	return err
}

func (s *session) get(path string) (data []byte, stat *zk.Stat, err error) {
	err = s.ask(toServer, func() (err error) { data, stat, err = s.conn.Get(path); return err })
	return data, stat, err
}

func (s *session) getACL(path string) (acl []zk.ACL, stat *zk.Stat, err error) {
	err = s.ask(toServer, func() (err error) { acl, stat, err = s.conn.GetACL(path); return err })
	return acl, stat, err
}

// setACL gives zk.ErrBadVersion if the ACL has another version by now.
func (s *session) setACL(path string, acl []zk.ACL, version int32) error {
	return s.ask(toQuorum, func() error { _, err := s.conn.SetACL(path, acl, version); return err })
}

// stat gives zk.ErrNoNode for a missing node.
func (s *session) stat(path string) (stat *zk.Stat, err error) {
	err = s.ask(toServer, func() error {
		there, st, err := s.conn.Exists(path)
		if err == nil && !there {
			err = zk.ErrNoNode
		}
		stat = st
		return err
	})
	return stat, err
}

func (s *session) children(path string) (names []string, stat *zk.Stat, err error) {
	err = s.ask(toServer, func() (err error) { names, stat, err = s.conn.Children(path); return err })
	return names, stat, err
}

// watchChildren sets a watch for the end of the node and for changes of its children. Its event
// comes to session.event; the channel of go-zookeeper is not needed.
func (s *session) watchChildren(path string) error {
	return s.ask(toServer, func() error { _, _, _, err := s.conn.ChildrenW(path); return err })
}

// watchData is get, and sets a watch for the end of the node and for writes to it.
func (s *session) watchData(path string) (data []byte, stat *zk.Stat, err error) {
	err = s.ask(toServer, func() (err error) { data, stat, _, err = s.conn.GetW(path); return err })
	return data, stat, err
}

func (s *session) create(path string, data []byte, flags int32, acl []zk.ACL) (made string, err error) {
	err = s.ask(toQuorum, func() (err error) { made, err = s.conn.Create(path, data, flags, acl); return err })
	return made, err
}

func (s *session) remove(path string, version int32) error {
	return s.ask(toQuorum, func() error { return s.conn.Delete(path, version) })
}

func (s *session) multi(ops ...any) (results []zk.MultiResponse, err error) {
	err = s.ask(toQuorum, func() (err error) { results, err = s.conn.Multi(ops...); return err })
	return results, err
}

// makeContainer makes a container. go-zookeeper's CreateContainer, alone among the requests,
// looks at the answer also when the zk.Conn was closed meanwhile, while its other goroutine may
// be writing it; so shutDown waits a little for a container that is being made.
func (s *session) makeContainer(path string, acl []zk.ACL) error {
	select {
	case s.containers <- struct{}{}:
		defer func() { <-s.containers }()
	case <-s.lease.Done():
		return s.lease.Err()
	}
	return s.ask(toQuorum, func() error {
		_, err := s.conn.CreateContainer(path, nil, zk.FlagContainer, acl)
		return err
	})
}

func (s *session) awaitContainer() {
	timer := time.NewTimer(200 * time.Millisecond)
	defer timer.Stop()
	select {
	case s.containers <- struct{}{}:
		<-s.containers
	case <-timer.C:
	}
}
