package dlocktest

import (
	"context"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

type places struct {
	mu    sync.Mutex
	queue map[string][]driver.Place
}

func (a *places) add(queue string, p driver.Place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queue == nil {
		a.queue = make(map[string][]driver.Place)
	}
	if p.Name != "" {
		a.queue[queue] = append(a.queue[queue], p)
	}
}

func (a *places) each(f func(queue string, p driver.Place)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for queue, all := range a.queue {
		for _, p := range all {
			f(queue, p)
		}
	}
}

// placing is a session that records the places of its nodes.
type placing struct {
	base
	places places
}

func (s *placing) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	s.places.add(queue, j.Place)
	return j, err
}
