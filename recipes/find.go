package recipes

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/driver"
)

// find returns the name under which a node stands in the queue: the one of its
// place, or the other one of the two that a downgrade whose outcome is unknown
// may have left it. It returns nothing if the node is not there: a node of the
// same name may be another client's, in a queue that was removed and made
// again, or forged.
func (s *session) find(ctx context.Context, m *RWMutex, p driver.Place) (string, error) {
	names := []string{p.Name}
	for _, prefix := range m.options.prefix[Shared:] {
		if name := driver.FormatName(prefix, p.Seq); name != p.Name {
			names = append(names, name)
		}
	}
	found, err := s.findRead(ctx, m.name, names, p)
	if errors.Is(err, errors.ErrUnsupported) {
		return s.findListed(ctx, m.name, names, p)
	}
	return found, err
}

// findRead asks for the node alone, however long the queue is.
func (s *session) findRead(ctx context.Context, queue string, names []string, p driver.Place) (string, error) {
	for _, name := range names {
		info, err := driver.Read(ctx, s.Session, queue, name)
		switch {
		case errors.Is(err, driver.ErrGone):
		case err != nil:
			return "", err
		case info.Token == p.Token && !info.Foreign:
			return name, nil
		}
	}
	return "", nil
}

func (s *session) findListed(ctx context.Context, queue string, names []string, p driver.Place) (string, error) {
	nodes, err := s.List(ctx, queue)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if indexOf(nodes, driver.Node{Name: name, Epoch: p.Epoch}) >= 0 {
			return name, nil
		}
	}
	return "", nil
}
