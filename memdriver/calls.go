package memdriver

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

var (
	_ driver.Connector = (*Store)(nil)
	_ driver.Session   = (*session)(nil)
	_ driver.Replacer  = (*session)(nil)
	_ driver.Releaser  = (*session)(nil)
	_ driver.Reader    = (*session)(nil)
	_ driver.Walker    = (*session)(nil)
)

// Create implements driver.Session. Order, names, tokens and Alone (rules 1, 2,
// 3 and 5) are the store's business; all or nothing (rule 4) is cleanUp's.
func (s *session) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	req := &request{op: OpCreate, queue: queue, prefix: prefix}
	if err := errors.Join(driver.CheckQueue(queue), driver.CheckPrefix(prefix)); err != nil {
		return driver.Place{}, req.failed(err)
	}
	req.data = bytes.Clone(data)
	req.call = s.creates.Add(1)
	rep, err := s.call(ctx, req)
	if errors.Is(err, errNoAnswer) {
		s.cleanUp(req.call)
	}
	return rep.place, err
}

// cleanUp removes what a Create of unknown outcome has left, or will have left
// when it arrives: rule 4. It goes on in the background until the store has
// confirmed that, or has dropped the session and the node with it. The
// number of the call stands for the node here; a store that knows no such
// numbers is asked for the node with the data of the call.
func (s *session) cleanUp(call int64) {
	s.spawn(func() {
		for s.lease.Err() == nil {
			if _, err := s.call(context.Background(), &request{op: OpCleanUp, call: call}); err == nil {
				return
			}
		}
	})
}

// List implements driver.Session.
func (s *session) List(ctx context.Context, queue string) ([]driver.Node, error) {
	req := &request{op: OpList, queue: queue}
	if err := driver.CheckQueue(queue); err != nil {
		return nil, req.failed(err)
	}
	rep, err := s.call(ctx, req)
	return rep.nodes, err
}

// Delete implements driver.Session: rule 7.
func (s *session) Delete(ctx context.Context, queue string, p driver.Place) error {
	req := &request{op: OpDelete, queue: queue, place: p}
	if err := driver.CheckQueue(queue); err != nil {
		return req.failed(err)
	}
	_, err := s.call(ctx, req)
	return err
}

// Release implements driver.Releaser: rule 13.
func (s *session) Release(ctx context.Context, queue string, p driver.Place) error {
	req := &request{op: OpRelease, queue: queue, place: p}
	if err := driver.CheckQueue(queue); err != nil {
		return req.failed(err)
	}
	_, err := s.call(ctx, req)
	return err
}

// Replace implements driver.Replacer: rule 12.
func (s *session) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	req := &request{op: OpReplace, queue: queue, prefix: prefix, place: p}
	if err := errors.Join(driver.CheckQueue(queue), driver.CheckPrefix(prefix)); err != nil {
		return driver.Place{}, req.failed(err)
	}
	rep, err := s.call(ctx, req)
	return rep.place, err
}

// Read implements driver.Reader.
func (s *session) Read(ctx context.Context, queue, name string) (driver.Info, error) {
	req := &request{op: OpRead, queue: queue, name: name}
	if err := driver.CheckQueue(queue); err != nil {
		return driver.Info{}, req.failed(err)
	}
	rep, err := s.call(ctx, req)
	return rep.info, err
}

// Walk implements driver.Walker.
func (s *session) Walk(ctx context.Context, prefix string) ([]string, error) {
	req := &request{op: OpWalk, name: prefix}
	if prefix != "" {
		if err := driver.CheckQueue(prefix); err != nil {
			return nil, req.failed(err)
		}
	}
	rep, err := s.call(ctx, req)
	return rep.queues, err
}

// failed returns an error that names the request.
func (r *request) failed(err error) error {
	switch r.op {
	case OpDelete, OpRelease, OpReplace:
		return fmt.Errorf("mem: %v %q in %q: %w", r.op, r.place.Name, r.queue, err)
	case OpCreate, OpList:
		return fmt.Errorf("mem: %v in %q: %w", r.op, r.queue, err)
	case OpWatch, OpRead:
		return fmt.Errorf("mem: %v %q in %q: %w", r.op, r.name, r.queue, err)
	case OpWalk:
		return fmt.Errorf("mem: %v %q: %w", r.op, r.name, err)
	}
	return fmt.Errorf("mem: %v: %w", r.op, err)
}
