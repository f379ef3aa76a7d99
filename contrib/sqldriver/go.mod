module github.com/dlock-go/dlock/contrib/sqldriver

go 1.25.0

require github.com/dlock-go/dlock v0.1.0
