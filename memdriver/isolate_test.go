package memdriver_test

import (
	"testing"

	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/memdriver"
)

func TestIsolate(t *testing.T) {
	doctortest.Isolation(t, memdriver.New())
	doctortest.Run(t, memdriver.New()).Healthy(t)
}
