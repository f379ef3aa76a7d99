package zkdriver

import (
	"slices"

	"github.com/dlock-go/dlock/driver"
)

// inFlight is the requests of one queue that are on their way: those that make a
// node, and those that remove nodes.
//
// A queue that an operator has removed and made again gives out its names once
// more. Two requests of one session may then cross: a removal is sent while the
// node of that name is the old one, and the server carries it out when the node
// is a new one, which a Create of the same session has made and whose answer
// has not been looked at. ZooKeeper cannot be told which of the two is meant.
// So a Create that met a removal of its node's name waits for the removal and
// looks at its node once more before it returns; and a removal waits for the
// Creates that were on their way when it began, whose answers come before its
// own, and looks, too, if one of them has won the name.
type inFlight struct {
	creations []*creation
	removals  []*removal
}

// creation is a request for a node on its way. Its fields are guarded by
// owned.mu.
type creation struct {
	ended        chan struct{} // closed by endCreation; nil if no removal waits for it
	removedNames []string      // names whose removal has ended meanwhile
}

// removal is a request on its way that removes a node which stands under one of
// these names.
type removal struct {
	names     []string
	ended     chan struct{} // closed by endRemoval; nil if no Create waits for it
	creations []*creation   // on their way when it began
}

// beginCreation is called before a node is asked for.
func (o *ownNodes) beginCreation(queue string) *creation {
	c := &creation{}
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.inFlightOf(queue)
	t.creations = append(t.creations, c)
	return c
}

// endCreation is called when the answer is there, and the node, if there is
// one, was added. It reports whether a removal of that name has been on its way
// at the same time, and returns what to wait for.
func (o *ownNodes) endCreation(queue string, c *creation, name string) (wait []<-chan struct{}, met bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.inFlightOf(queue)
	t.creations = slices.DeleteFunc(t.creations, func(other *creation) bool { return other == c })
	if c.ended != nil {
		close(c.ended)
	}
	for _, r := range t.removals {
		if slices.Contains(r.names, name) {
			if r.ended == nil {
				r.ended = make(chan struct{})
			}
			wait = append(wait, r.ended)
		}
	}
	o.dropInFlight(queue, t)
	return wait, len(wait) > 0 || slices.Contains(c.removedNames, name)
}

// beginRemoval is called before a node is looked at to be removed.
func (o *ownNodes) beginRemoval(queue string, names ...string) *removal {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.addRemoval(queue, names)
}

// addRemoval needs o.mu.
func (o *ownNodes) addRemoval(queue string, names []string) *removal {
	t := o.inFlightOf(queue)
	r := &removal{names: names, creations: slices.Clone(t.creations)}
	for _, c := range r.creations {
		if c.ended == nil {
			c.ended = make(chan struct{})
		}
	}
	t.removals = append(t.removals, r)
	return r
}

// endRemoval is called when the answer is there.
func (o *ownNodes) endRemoval(queue string, r *removal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.inFlightOf(queue)
	t.removals = slices.DeleteFunc(t.removals, func(other *removal) bool { return other == r })
	if r.ended != nil {
		close(r.ended)
	}
	for _, c := range t.creations {
		c.removedNames = append(c.removedNames, r.names...)
	}
	o.dropInFlight(queue, t)
}

// inFlightOf needs o.mu.
func (o *ownNodes) inFlightOf(queue string) *inFlight {
	t := o.inFlight[queue]
	if t == nil {
		if o.inFlight == nil {
			o.inFlight = make(map[string]*inFlight)
		}
		t = &inFlight{}
		o.inFlight[queue] = t
	}
	return t
}

// dropInFlight needs o.mu.
func (o *ownNodes) dropInFlight(queue string, t *inFlight) {
	if len(t.creations)+len(t.removals) == 0 {
		delete(o.inFlight, queue)
	}
}

// otherNodeOfName returns the place of another node that this session has won under
// that name.
func (o *ownNodes) otherNodeOfName(queue, name string, token int64) (p driver.Place, there bool) {
	_, seq, ok := driver.ParseName(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	in := o.queues[queue]
	if !ok || in == nil {
		return p, false
	}
	c := in.bySeq[seq]
	if c == nil || c.token == token || !slices.Contains(c.names, name) {
		return p, false
	}
	return driver.Place{Node: driver.Node{Name: name, Seq: seq, Epoch: in.epoch}, Token: c.token}, true
}

// stillStands looks at a node once more, after the removals that have met its
// Create are over. The error matches driver.ErrGone if one of them has removed
// it.
func (s *session) stillStands(queue string, p driver.Place, wait []<-chan struct{}) error {
	for _, over := range wait {
		<-over
	}
	path := s.settings.queuePath(queue)
	if err := s.conn.Sync(path); err != nil { // the session may have gone to another server
		return explain(err, "look at", path, "READ on it")
	}
	_, err := s.findNode(queue, p.Token, []string{p.Name})
	return err
}

// hitOtherNode returns an error that matches driver.ErrGone if a removal that has
// just succeeded has removed another node of this session than that of the
// token.
func (s *session) hitOtherNode(queue string, token int64, name string, r *removal) error {
	for _, c := range r.creations {
		if c.ended != nil {
			<-c.ended
		}
	}
	p, there := s.own.otherNodeOfName(queue, name, token)
	if !there {
		return nil
	}
	return s.stillStands(queue, p, nil)
}
