package postgres

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// hostile creates a schema whose objects shadow those of pg_catalog and fail
// when used. It omits pg_is_in_recovery, which pgx calls without a schema.
const hostile = `
CREATE ROLE hostile; CREATE SCHEMA hostile AUTHORIZATION hostile; GRANT USAGE ON SCHEMA hostile TO PUBLIC; SET ROLE hostile; SET search_path = '';
CREATE FUNCTION hostile.concat(pg_catalog.text, pg_catalog.pg_lsn) RETURNS pg_catalog.text LANGUAGE plpgsql AS 'BEGIN RAISE ''hostile concat''; END';
CREATE FUNCTION hostile.hit() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE ''hostile view''; END';
CREATE DOMAIN hostile.record AS integer;
DO $do$
DECLARE
    made integer := 0;
    statement text;
BEGIN
    FOR statement IN
        SELECT format('CREATE FUNCTION hostile.%I(%s) RETURNS %s LANGUAGE plpgsql AS ''BEGIN RAISE ''''hostile %s''''; END''', proname,
            (SELECT string_agg(CASE WHEN i < array_length(types, 1) OR provariadic = 0 THEN replace(t::regtype::text, '"any"', 'anycompatible')
                ELSE 'VARIADIC ' || replace(t::regtype::text, '"any"', 'anycompatiblearray') END, ', ' ORDER BY i)
                FROM unnest(types) WITH ORDINALITY AS u (t, i)), CASE WHEN proretset THEN 'SETOF ' ELSE '' END || prorettype::regtype, proname)
            FROM (SELECT *, proargtypes::oid[] AS types FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname <> 'pg_is_in_recovery') p
        UNION ALL SELECT format('CREATE FUNCTION hostile.operator_%s(%s) RETURNS %s LANGUAGE plpgsql AS ''BEGIN RAISE ''''hostile operator %s''''; END''; ',
                oid, concat_ws(', ', nullif(oprleft, 0)::regtype, oprright::regtype), oprresult::regtype, replace(oprname, '%', '%%')) ||
            format('CREATE OPERATOR hostile.%s (FUNCTION = hostile.operator_%s%s, RIGHTARG = %s)',
                oprname, oid, ', LEFTARG = ' || nullif(oprleft, 0)::regtype, oprright::regtype) FROM pg_operator
        UNION ALL SELECT format('CREATE DOMAIN hostile.%I AS pg_catalog.%1$I CHECK (false)', typname) FROM pg_type WHERE typtype = 'b'
        UNION ALL SELECT format('CREATE VIEW hostile.%I AS SELECT c.* FROM pg_catalog.%1$I c WHERE hostile.hit()', relname) FROM pg_class
            WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')
    LOOP
        BEGIN
            EXECUTE statement;
            made := made + 1;
        EXCEPTION WHEN OTHERS THEN -- such as functions with internal types, which no statement can call
        END;
    END LOOP;
    IF made < 3000 THEN RAISE 'only % objects', made; END IF;
END $do$`

// Nobody may make another user's session run objects placed in its search path.
func TestObjectsInTheSearchPathAreNotUsed(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	server.SQL(t, hostile)
	dsn := role(t, server, "s", []string{"search_path = hostile, pg_catalog"})
	connect := func() (*session.Session, *store) {
		s := testenv.Session(t, Driver{}, dsn)
		return s.(*session.Session), s.(*session.Session).Store().(*store)
	}
	s, st := connect()
	other, _ := connect()
	ctx := t.Context()
	change := func(c session.Change, want error) {
		t.Helper()
		c.Queue, c.Prefix, c.Data = "q", "a-W-", []byte("x")
		_, err := st.Do(ctx, c)
		require.ErrorIs(t, err, want)
	}

	first := mustCreate(t, s, "1")
	second := mustCreate(t, other, "2")
	w, err := other.Watch(ctx, "q", second.Place, first.Node)
	require.NoError(t, err)
	change(session.Change{Kind: session.SetValue, Place: first.Place}, nil)
	change(session.Change{Kind: session.Replace, Place: first.Place}, nil)
	change(session.Change{Kind: session.Delete, Place: first.Place}, nil)
	<-w.C
	change(session.Change{Kind: session.Delete, Place: first.Place}, driver.ErrGone)
	mustCreate(t, s, "3")
	require.NoError(t, st.Cancel(ctx, []session.Change{{Data: []byte("3")}}))

	_, _, err = st.Value(ctx, "q")
	require.NoError(t, err)
	_, err = st.Read(ctx, "q", second.Name)
	require.NoError(t, err)
	_, err = st.Walk(ctx, "q")
	require.NoError(t, err)
	findings, err := st.connector.Check(ctx)
	require.NoError(t, err)
	assert.NotContains(t, fmt.Sprint(findings), "hostile")

	change(session.Change{Kind: session.Remove, Place: second.Place}, nil)
	db, err := st.DB()
	require.NoError(t, err)
	for _, byHand := range []string{
		"INSERT INTO s.node (queue, name, data) VALUES ('q', 'n', '')", "UPDATE s.node SET name = 'm'", "DELETE FROM s.node",
		"INSERT INTO s.session (id, timeout, deadline) VALUES ('A7', '1s', '-infinity')",
	} {
		_, err = db.ExecContext(ctx, byHand)
		require.NoError(t, err)
	}
	ended, err := st.Expire(ctx)
	require.NoError(t, err)
	require.True(t, ended)
	_, err = st.Tidy(ctx)
	require.NoError(t, err)
	_, err = st.Beat(ctx)
	require.NoError(t, err)
	require.NoError(t, s.Close())
}
