package faults_test

import (
	"context"
	"crypto/rand"
	"sync"

	"github.com/dlock-go/dlock/dlocktest/faults"
)

// The prefixes that recipes use, of two contenders.
const (
	writer = "web1-W-"
	reader = "web2-R-"
)

// data returns what differs in every call, as a Create needs it.
func data() []byte { return []byte(rand.Text()) }

// on plays a fault on the first request of a kind that comes to a stage.
func on(stage faults.Stage, op faults.Op, f faults.Fault) faults.Plan {
	var once sync.Once
	return func(_ context.Context, r faults.Request) (played faults.Fault) {
		if r.Stage == stage && r.Op == op {
			once.Do(func() { played = f })
		}
		return played
	}
}
