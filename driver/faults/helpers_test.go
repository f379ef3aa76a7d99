package faults_test

import (
	"context"
	"crypto/rand"
	"sync"

	"github.com/dlock-go/dlock/driver/faults"
)

// Node name prefixes, in the form that locks use.
const (
	writer = "web1-W-"
	reader = "web2-R-"
)

// data returns the data of a node, which differs in every call.
func data() []byte { return []byte(rand.Text()) }

// on returns a plan that injects the fault f once: into the first request of
// the given kind that reaches the given stage.
func on(stage faults.Stage, op faults.Op, f faults.Fault) faults.Plan {
	var once sync.Once
	return func(_ context.Context, r faults.Request) (played faults.Fault) {
		if r.Stage == stage && r.Op == op {
			once.Do(func() { played = f })
		}
		return played
	}
}
