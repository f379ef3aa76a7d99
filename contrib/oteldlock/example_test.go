package oteldlock_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/oteldlock"
	_ "github.com/dlock-go/dlock/memdriver"
)

func Example() {
	reader := metric.NewManualReader() // or a reader with an exporter
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))

	trace, err := oteldlock.New()
	if err != nil {
		log.Fatal(err)
	}
	client, err := dlock.Open("mem", "", dlock.WithTrace(trace))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	lock, err := client.RWMutex("stock/42").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	var data metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &data); err != nil {
		log.Fatal(err)
	}
	for _, m := range data.ScopeMetrics[0].Metrics {
		if m.Name == "dlock.held" {
			fmt.Println(m.Name, m.Description)
		}
	}
	fmt.Println(lock.Unlock())
	// Output:
	// dlock.held Locks that are held.
	// <nil>
}
