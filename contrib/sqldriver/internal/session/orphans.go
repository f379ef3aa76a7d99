package session

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"
)

// orphans holds the data of nodes whose Create was not answered and may yet
// take effect.
type orphans struct {
	mu      sync.Mutex
	data    [][]byte
	running bool // whether removeOrphans is running
}

// orphan removes, in the background, the node that an unanswered Create may
// have made. Raising the generation makes the database refuse the Create if it
// arrives later.
func (s *Session) orphan(data []byte) {
	o := &s.orphans
	o.mu.Lock()
	defer o.mu.Unlock()
	s.generation.Add(1)
	o.data = append(o.data, bytes.Clone(data))
	if !o.running {
		o.running = s.calls.Go(s.removeOrphans)
	}
}

// cancelPause is the time between two attempts to remove an orphan.
const cancelPause = 50 * time.Millisecond

// removeOrphans removes the orphans one at a time. If it cannot remove one, it
// tries the next, because an operator's transaction may have locked the node.
func (s *Session) removeOrphans() {
	life, cancel := s.lease.Context()
	defer cancel()
	for {
		data, op, more := s.nextOrphan()
		if !more {
			return
		}
		ctx, cancel := context.WithTimeout(life, max(s.timeout/4, time.Second))
		err := s.store.Cancel(ctx, op, data)
		cancel()
		switch {
		case err == nil:
		case errors.Is(err, ErrUnknownSession):
			s.lease.End(err)
			return
		default:
			s.orphans.add(data)
			if !Sleep(life, cancelPause) {
				return
			}
		}
	}
}

// nextOrphan removes the next orphan from o.data and returns it. The generation
// in op is higher than that of the Create that may have made the orphan.
func (s *Session) nextOrphan() (data []byte, op Op, more bool) {
	o := &s.orphans
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running = len(o.data) > 0
	if !o.running {
		return nil, Op{}, false
	}
	data, o.data = o.data[0], o.data[1:]
	return data, Op{s.id, s.generation.Load()}, true
}

func (o *orphans) add(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.data = append(o.data, data)
}
