package faults_test

import (
	"context"
	"crypto/rand"
	"sync"

	"github.com/dlock-go/dlock/driver/faults"
)

const (
	writer = "web1-W-"
	reader = "web2-R-"
)

func data() []byte { return []byte(rand.Text()) }

// on injects f once, into the first request for op that reaches the stage.
func on(stage faults.Stage, op faults.Op, f faults.Fault) faults.Plan {
	var once sync.Once
	return func(_ context.Context, r faults.Request) (played faults.Fault) {
		if r.Stage == stage && r.Op == op {
			once.Do(func() { played = f })
		}
		return played
	}
}
