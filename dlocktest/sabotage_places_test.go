package dlocktest

import (
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

func (a *places) in(queue string) []driver.Place {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]driver.Place(nil), a.queue[queue]...)
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
