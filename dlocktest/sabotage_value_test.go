package dlocktest

import (
	"bytes"
	"cmp"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var valueSabotages = []sabotage{
	{"sets a value without looking for the node", "SQL: an upsert; Redis: SET",
		valuesIf(func(*request) error { return nil })},
	{"looks for the node and sets the value in two steps", "a store without transactions, or a driver without one",
		valuesIf(func(r *request) error {
			err := ownNode(r)
			time.Sleep(time.Millisecond)
			return err
		})},
	{"looks for the node by its name when it sets a value", "ZooKeeper: a check of the path, in a store where names come again",
		valuesIf(func(r *request) error { return gone(there(r.s, r.queue, r.place.Name)) })},
	{"sets a value for the nodes of other sessions", "a condition without the session",
		valuesIf(func(r *request) error {
			info, err := r.s.Read(r.ctx, r.queue, r.place.Name)
			return cmp.Or(err, gone(info.Token == r.place.Token))
		})},
	{"lets an older contender overwrite what a later one has set", "an upsert without a comparison of tokens",
		valuesIf(func(r *request) error {
			err := ownNode(r)
			if err == nil {
				inStore[wrongValues](r.s).put(r.queue, wrongValue{})
			}
			return err
		})},
	{"refuses a second SetValue of a node", "a comparison of tokens with < instead of <=",
		refuses(faults.OpSetValue, driver.ErrStale, func(r *request) bool {
			_, token, err := r.s.base.Value(r.ctx, r.queue)
			return err == nil && token == r.place.Token
		})},
	{"stores the value in the node", "a column of the node's row",
		after(faults.OpValue, func(r *request) {
			if nodes, _ := r.s.List(r.ctx, r.queue); len(nodes) == 0 {
				r.value, r.token = nil, 0
			}
		})},
	{"stores the value with its session", "etcd: a key with the lease; Redis: a key that expires",
		func(s *faulty) {
			setBy := inStore[sync.Map](s) // the value's session, by its node's token
			s.on(faults.OpSetValue, func(r *request, send func()) {
				send()
				setBy.Store(r.place.Token, s)
			})
			s.after(faults.OpValue, func(r *request) {
				if by, known := setBy.Load(r.token); known && by.(*faulty).Err() != nil {
					r.value, r.token = nil, 0
				}
			})
		}},
	{"stores one value for a queue and those below it", "a value in the parent's node",
		valuesAt(func(queue string) string { first, _, _ := strings.Cut(queue, "/"); return first })},
	{"stores a value under the name of another queue", "a value in the queue's node named value, next to the queue of that name",
		valuesAt(func(queue string) string { return strings.TrimSuffix(queue, "/value") })},
	{"shows a value as a node", "a sequential child of the queue's node",
		after(faults.OpList, func(r *request) {
			if _, token, err := r.s.base.Value(r.ctx, r.queue); err == nil && token > 0 {
				r.nodes = append(r.nodes, driver.Node{Name: "value-0000000000"})
			}
		})},
	{"shows the place of the values as a queue", "a queue for the values of all queues",
		after(faults.OpWalk, func(r *request) {
			if r.queue == "" {
				r.queues = append(r.queues, "~kept")
			}
		})},
	{"sets a value only for the name that the node had first", "a condition with the name of the place",
		refuses(faults.OpSetValue, driver.ErrGone, func(r *request) bool {
			nodes, err := r.s.List(r.ctx, r.queue)
			return err == nil && !hasName(nodes, r.place.Name)
		})},
	{"stores text only", "a value that ends with its first zero byte, or a column of text",
		before(faults.OpSetValue, func(r *request) { r.value, _, _ = bytes.Cut(r.value, []byte{0}) })},
	{"cuts a value", "MySQL: a BLOB, which has 65,535 bytes",
		before(faults.OpSetValue, func(r *request) { r.value = r.value[:min(len(r.value), driver.MaxValue-1)] })},
	{"stores values of any length", "a store without a limit",
		on(faults.OpSetValue, func(r *request, send func()) {
			if len(r.value) <= driver.MaxValue {
				send()
			}
		})},
	{"stores the caller's bytes", "a value that is stored without a copy, or sent later",
		all(valuesIf(ownNode), func(s *faulty) { inStore[wrongValues](s).uncopied = true })},
	{"returns a value that it remembers", "a cache without the notices of other sessions' writes",
		func(s *faulty) {
			var seen sync.Map // the first value read in each queue
			s.on(faults.OpValue, func(r *request, send func()) {
				if old, ok := seen.Load(r.queue); ok {
					r.value, r.token, r.err = old.(wrongValue).value, old.(wrongValue).token, s.Err()
					return
				}
				if send(); r.token > 0 {
					seen.Store(r.queue, wrongValue{r.value, r.token})
				}
			})
		}},
	{"takes a lost answer of SetValue for a refusal", "an error of the connection that is passed on as it is",
		on(faults.OpSetValue, func(r *request, send func()) {
			if send(); errors.Is(r.err, driver.ErrUnavailable) && r.ctx.Err() == nil {
				r.err = errPlain("connection reset by peer")
			}
		})},
	{"tells the time of its own machine when it creates", "a clock that is nearer than the store's",
		after(faults.OpCreate, func(r *request) { r.joined.Created = time.Now().Add(time.Minute) })},
}

type wrongValues struct {
	mu       sync.Mutex
	of       map[string]wrongValue
	uncopied bool
}

type wrongValue struct {
	value []byte
	token int64
}

func (v *wrongValues) put(at string, value wrongValue) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil {
		v.of = make(map[string]wrongValue)
	}
	v.of[at] = value
}

func (v *wrongValues) get(at string) wrongValue {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.of[at]
}

// valuesIf lets the given function alone decide whether a contender may set a
// value.
func valuesIf(allowed func(r *request) error) plant {
	return wrongly(allowed, func(queue string) string { return queue })
}

func valuesAt(name func(queue string) string) plant { return wrongly(ownNode, name) }

func wrongly(allowed func(r *request) error, name func(queue string) string) plant {
	return func(s *faulty) {
		values := inStore[wrongValues](s)
		s.on(faults.OpSetValue, func(r *request, _ func()) {
			r.err = errors.Join(driver.CheckQueue(r.queue), driver.CheckValue(r.value), s.Err())
			if r.err == nil {
				r.err = allowed(r)
			}
			if r.err == nil && values.get(name(r.queue)).token > r.place.Token {
				r.err = driver.ErrStale
			}
			if r.err != nil {
				return
			}
			if !values.uncopied {
				r.value = bytes.Clone(r.value)
			}
			values.put(name(r.queue), wrongValue{r.value, r.place.Token})
		})
		s.after(faults.OpValue, func(r *request) {
			if wrong := values.get(name(r.queue)); wrong.token > 0 {
				r.value, r.token = wrong.value, wrong.token
			}
		})
	}
}

func ownNode(r *request) error {
	nodes, err := r.s.base.List(r.ctx, r.queue)
	for _, n := range nodes {
		if info, err := r.s.base.Read(r.ctx, r.queue, n.Name); err == nil && info.Token == r.place.Token && !info.Foreign {
			return nil
		}
	}
	return cmp.Or(err, driver.ErrGone)
}
