package zkconn

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
)

// ask sends a request. Every request must go through ask or track, because its
// answer may renew the lease, or end it if the session is over.
func (c *Conn) ask(r reach, request func() error) error { return c.track(r, false, request) }

func (c *Conn) track(r reach, isHeartbeat bool, request func() error) error {
	connection := c.keepalive.connection()
	sent := c.lease.Now()
	if err := c.lease.Err(); err != nil {
		return err
	}
	err := request()
	// An error from the server is an answer too. But some errors come from a
	// server that has not asked its leader, so they prove no more than a read.
	if err == nil || !Unanswered(err) {
		if err != nil {
			r = toServer
		}
		c.keepalive.answered(connection, r, sent, c.lease.Now(), isHeartbeat)
		c.dialer.resetBackOff()
	}
	switch {
	case errors.Is(err, zk.ErrSessionExpired):
		c.end(errExpired)
	case errors.Is(err, zk.ErrSessionMoved), errors.Is(err, zk.ErrAuthFailed):
		c.end(err)
	default:
		return err
	}
	return c.lease.Err()
}

// Sync waits until the server has caught up with its leader, as of the time of
// the call.
func (c *Conn) Sync(path string) error {
	return c.ask(toLeader, func() error { _, err := c.client.Sync(path); return err })
}

// CountFromWrite makes the lease count from an answered write. It must be called
// when Create has made a node and HasNodes returns true, before the caller of
// Create learns of the node: see keepalive. It sends a write only if the answer
// to the Create does not count, because the session has moved to another
// connection.
func (c *Conn) CountFromWrite() error {
	err := c.keepalive.countFromWrite()
	if !errors.Is(err, errNoWrite) {
		return err
	}
	if err := c.ask(toQuorum, c.checkRoot); err != nil {
		return err
	}
	return c.keepalive.countFromWrite()
}

// checkRoot sends a transaction that changes nothing.
func (c *Conn) checkRoot() error {
	_, err := c.client.Multi(&zk.CheckVersionRequest{Path: "/", Version: -1})
	if errors.Is(err, zk.ErrNoAuth) {
		// This error comes from the leader and passes the quorum like a
		// transaction, so it proves as much.
		return nil
	}
	return err
}

// heartbeat sends a Sync or a write in the background. It calls ended when the
// request was answered or has failed.
func (c *Conn) heartbeat(r reach, ended func()) {
	c.Work(func() {
		defer ended()
		c.track(r, true, func() error {
			if r == toQuorum {
				return c.checkRoot()
			}
			_, err := c.client.Sync("/")
			return err
		})
	})
}

func (c *Conn) Get(path string) (data []byte, stat *zk.Stat, err error) {
	err = c.ask(toServer, func() (err error) { data, stat, err = c.client.Get(path); return err })
	return data, stat, err
}

func (c *Conn) GetACL(path string) (acl []zk.ACL, stat *zk.Stat, err error) {
	err = c.ask(toServer, func() (err error) { acl, stat, err = c.client.GetACL(path); return err })
	return acl, stat, err
}

// SetACL replaces a node's ACL. If version does not match, the error is
// zk.ErrBadVersion.
func (c *Conn) SetACL(path string, acl []zk.ACL, version int32) error {
	return c.ask(toQuorum, func() error { _, err := c.client.SetACL(path, acl, version); return err })
}

// Stat reads a node's Stat. If there is no such node, the error is
// zk.ErrNoNode.
func (c *Conn) Stat(path string) (stat *zk.Stat, err error) {
	err = c.ask(toServer, func() error {
		there, st, err := c.client.Exists(path)
		if err == nil && !there {
			err = zk.ErrNoNode
		}
		stat = st
		return err
	})
	return stat, err
}

// Children reads the names of a node's children, and its Stat.
func (c *Conn) Children(path string) (names []string, stat *zk.Stat, err error) {
	err = c.ask(toServer, func() (err error) { names, stat, err = c.client.Children(path); return err })
	return names, stat, err
}

// WatchChildren sets a watch that fires when the node is removed or its
// children change. Events.Changed receives the event.
func (c *Conn) WatchChildren(path string) error {
	return c.ask(toServer, func() error { _, _, _, err := c.client.ChildrenW(path); return err })
}

// WatchData reads a node and sets a watch, which fires when the node is removed
// or its data is written.
func (c *Conn) WatchData(path string) (data []byte, stat *zk.Stat, err error) {
	err = c.ask(toServer, func() (err error) { data, stat, _, err = c.client.GetW(path); return err })
	return data, stat, err
}

// Create makes a node and returns its path.
func (c *Conn) Create(path string, data []byte, flags int32, acl []zk.ACL) (made string, err error) {
	err = c.ask(toQuorum, func() (err error) { made, err = c.client.Create(path, data, flags, acl); return err })
	return made, err
}

const maxContainers = 256

// CreateContainer makes a container. At most maxContainers calls are in flight
// at a time.
//
// go-zookeeper's CreateContainer has a data race if the zk.Conn is closed
// before the answer arrives, so shutDown waits a little for calls in flight.
func (c *Conn) CreateContainer(path string, acl []zk.ACL) error {
	ctx, cancel := c.lease.Context()
	defer cancel()
	if c.containers.Acquire(ctx, 1) != nil {
		return c.lease.Err()
	}
	defer c.containers.Release(1)
	return c.ask(toQuorum, func() error {
		_, err := c.client.CreateContainer(path, nil, zk.FlagContainer, acl)
		return err
	})
}

// awaitContainers waits up to 200 ms for the calls of CreateContainer in
// flight.
func (c *Conn) awaitContainers() {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if c.containers.Acquire(ctx, maxContainers) == nil {
		c.containers.Release(maxContainers)
	}
}

// Delete removes a node if it has that version. The version -1 matches any.
func (c *Conn) Delete(path string, version int32) error {
	return c.ask(toQuorum, func() error { return c.client.Delete(path, version) })
}

func (c *Conn) Multi(ops ...any) (results []zk.MultiResponse, err error) {
	err = c.ask(toQuorum, func() (err error) { results, err = c.client.Multi(ops...); return err })
	return results, err
}
