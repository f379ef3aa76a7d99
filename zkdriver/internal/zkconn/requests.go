package zkconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// Every request must go through ask or track, because answers renew or end the
// lease.
func (c *Conn) ask(r reach, request func() error) error { return c.track(r, false, request) }

func (c *Conn) track(r reach, isHeartbeat bool, request func() error) error {
	connection := c.keepalive.connection()
	sent := c.lease.Now()
	if err := c.lease.Err(); err != nil {
		return err
	}
	err := request()
	// An error proves no more than a read: some servers refuse without asking the
	// leader.
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

// Sync waits until the server has caught up with its leader's present state.
func (c *Conn) Sync(path string) error {
	return c.ask(toLeader, func() error { _, err := c.client.Sync(path); return err })
}

// CountFromWrite makes the lease count from an answered write, as it must while
// the session has a node: see keepalive. Call it before a new node is returned
// to the caller of Create, when HasNodes already returns true. If the session
// has reconnected since the node was made, CountFromWrite sends another write.
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

// checkRoot sends a transaction that changes nothing but needs a quorum.
func (c *Conn) checkRoot() error {
	_, err := c.client.Multi(&zk.CheckVersionRequest{Path: "/", Version: -1})
	if errors.Is(err, zk.ErrNoAuth) {
		// The error passes the quorum like a transaction, so it proves as much.
		return nil
	}
	return err
}

func (c *Conn) sendHeartbeat(r reach, ended func()) {
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

// SetACL replaces an ACL of the given version, or returns zk.ErrBadVersion.
func (c *Conn) SetACL(path string, acl []zk.ACL, version int32) error {
	return c.ask(toQuorum, func() error { _, err := c.client.SetACL(path, acl, version); return err })
}

// Stat reads a node's Stat. If there is no node, the error is zk.ErrNoNode.
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

// WatchData reads a node and sets a watch that fires when the node changes.
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

// CreateContainer makes a container. At most maxContainers calls run at a time.
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

// awaitContainers waits until no CreateContainer is in flight, for up to 200 ms.
func (c *Conn) awaitContainers() {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if c.containers.Acquire(ctx, maxContainers) == nil {
		c.containers.Release(maxContainers)
	}
}

// Delete removes a node of the given version. The version -1 matches any.
func (c *Conn) Delete(path string, version int32) error {
	return c.ask(toQuorum, func() error { return c.client.Delete(path, version) })
}

func (c *Conn) Multi(ops ...any) (results []zk.MultiResponse, err error) {
	err = c.ask(toQuorum, func() (err error) { results, err = c.client.Multi(ops...); return err })
	return results, err
}

// AfterSend calls the function run once, when a transaction that contains the
// given bytes is written to a connection. Requests made by run are sent after
// the transaction, and answered after it if the connection is the same. The
// function run must not block.
//
// The function cancel prevents the call, or returns false if it is too late.
func (c *Conn) AfterSend(contents []byte, run func()) (cancel func() bool) {
	c.dialer.afterSend.Store(string(contents), run)
	return func() bool {
		_, there := c.dialer.afterSend.LoadAndDelete(string(contents))
		return there
	}
}

// Go starts job on a goroutine of the Conn. If the Conn has shut down, Go
// returns false without running job.
func (c *Conn) Go(job func()) bool { return c.workers.run(job) }

// Work is like Go, but if the Conn has shut down, Work runs job on the calling
// goroutine, where all requests of the job fail.
func (c *Conn) Work(job func()) {
	if !c.workers.run(job) {
		job()
	}
}

// AwaitConnection waits until the session has a connection. It returns an error
// if the session or ctx has ended.
func (c *Conn) AwaitConnection(ctx context.Context) error {
	if err := c.lease.Err(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("zkdriver: %w", err)
	}
	select {
	case <-c.dialer.whenConnected():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("zkdriver: %w", ctx.Err())
	case <-c.lease.Done():
		return c.lease.Err()
	}
}

// Await returns job's result. The job runs on its own goroutine, or on the
// caller's if ctx never ends. If ctx or the session ends first, Await returns
// an error at once. The job continues, and passes its result to late if set.
//
// Await first waits for a connection, so no request is sent after the caller
// has given up.
func Await[T any](ctx context.Context, c *Conn, job func() (T, error), late func(T, error)) (T, error) {
	var none T
	if err := c.AwaitConnection(ctx); err != nil {
		return none, err
	}
	if ctx.Done() == nil {
		v, err := job()
		return unlessEnded(c, v, err)
	}
	type result struct {
		v   T
		err error
	}
	results, left := make(chan result), make(chan struct{})
	if !c.Go(func() {
		v, err := job()
		select {
		case results <- result{v, err}:
		case <-left:
			if late != nil {
				late(v, err)
			}
		}
	}) {
		return none, c.lease.Err()
	}
	defer close(left)
	select {
	case r := <-results:
		return unlessEnded(c, r.v, r.err)
	case <-ctx.Done():
		return none, fmt.Errorf("zkdriver: %w", ctx.Err())
	case <-c.lease.Done():
		return none, c.lease.Err()
	}
}

func unlessEnded[T any](c *Conn, v T, err error) (T, error) {
	if end := c.lease.Err(); end != nil {
		var none T
		return none, end
	}
	return v, err
}

// AwaitErr is [Await] for a job that returns only an error.
func AwaitErr(ctx context.Context, c *Conn, job func() error) error {
	_, err := Await(ctx, c, func() (struct{}, error) { return struct{}{}, job() }, nil)
	return err
}

// workers runs jobs, each on a goroutine of its own, until close.
type workers struct {
	wg sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

func (w *workers) run(job func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.wg.Go(job)
	return true
}

// close makes run refuse further jobs, and waits for the running ones.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wg.Wait()
}

// refusals are the errors that say that the request was not carried out.
var refusals = []error{
	zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion, zk.ErrNoAuth, zk.ErrInvalidACL,
	zk.ErrNoChildrenForEphemerals, zk.ErrBadArguments, zk.ErrAPIError, zk.ErrNothing, zk.ErrReconfigDisabled,
	zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrAuthFailed,
}

// Unanswered reports whether err means that no answer has arrived, so that the
// server may or may not have carried out the request.
func Unanswered(err error) bool {
	return !isAny(err, refusals...) && !strings.HasPrefix(err.Error(), unknownCode) && !errors.Is(err, zk.ErrInvalidPath)
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// Server error codes that go-zookeeper does not name.
const (
	codeUnimplemented = "unknown error: -6"
	codeQuota         = "unknown error: -125"
	unknownCode       = "unknown error: -"
)

// Unimplemented reports whether the server is too old to know the request.
func Unimplemented(err error) bool { return err.Error() == codeUnimplemented }

// QuotaExceeded reports whether err means that a hard quota refuses the request.
func QuotaExceeded(err error) bool { return err.Error() == codeQuota }

// Permanent reports whether the same request would fail with err again.
func Permanent(err error) bool {
	return isAny(err, zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrNoChildrenForEphemerals, zk.ErrBadArguments,
		zk.ErrInvalidPath, zk.ErrAPIError, zk.ErrShortBuffer, zk.ErrInvalidFlags) ||
		Unimplemented(err) || QuotaExceeded(err)
}

// TimeoutTooShort reports whether err means that the session timeout granted by
// the server is too short for the lease margin or the tick of the Config.
func TimeoutTooShort(err error) bool { return errors.Is(err, errMargin) || errors.Is(err, errTick) }

// LoginRefused reports whether the server has refused a digest login.
func LoginRefused(err error) bool { return isAny(err, errLogin, zk.ErrAuthFailed) }
