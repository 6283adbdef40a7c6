package brokerstorm.pulsar;

import brokerstorm.kit.Control;
import brokerstorm.kit.ErrorTexts;
import brokerstorm.kit.TransactionalClient;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * A client with transactions and its producers: one sending thread's. Pulsar has no transactional ids: what a client
 * left open ends by the time-out of its transaction, whoever comes after it.
 *
 * <p>By names of classes, since older clients lack some. Sources: Transaction, TransactionImpl,
 * TransactionCoordinatorClientException, TransactionMetaStoreHandler.
 */
final class TransactionalProducers implements TransactionalClient {
    /** No answer of the coordinator, or it is not there now: the client lets the call be made again. */
    private static final Set<String> AGAIN = Set.of(
            "TimeoutException", "RequestTimeoutException", "CoordinatorNotFoundException",
            "MetaStoreHandlerNotReadyException", "ConnectException", "NotConnectedException", "LookupException");
    /** A message or its topic was not taken: the client does not commit, and has asked for the abort itself. */
    private static final String REFUSED = "TransactionHasOperationFailedException";
    // To be given up: TransactionNotFoundException, InvalidTxnStatusException (it has ended, nobody says how: committed
    // by a call before, or aborted by its time-out) and everything else. TransactionConflictException is about
    // acknowledgements, of which there are none here.

    private static final long TICK_MS = 100;
    private static final long GLANCE_NS = 200_000;

    private final Control control;
    private final Making make;
    private Producers producers;
    private Transaction open;

    interface Making {
        Producers run() throws Exception;
    }

    TransactionalProducers(Control control, Making make) {
        this.control = control;
        this.make = make;
    }

    Producers producers() {
        return producers;
    }

    /**
     * The transaction that messages are sent in.
     *
     * @throws IllegalStateException there is none: the message would be sent without
     */
    Transaction open() {
        if (open == null) {
            throw new IllegalStateException("no transaction is open");
        }
        return open;
    }

    @Override
    public void init() throws Exception {
        producers = make.run();
    }

    @Override
    public void begin() throws Exception {
        open = null;
        open = answer(producers.client.newTransaction().build());
    }

    @Override
    public void commit() throws Exception {
        answer(open().commit());
    }

    @Override
    public void abort() throws Exception {
        if (!state().equals("ABORTED")) { // by the client itself, in place of a commit
            answer(open().abort());
        }
    }

    private String state() {
        try { // of the implementation, in the first versions
            return String.valueOf(open().getClass().getMethod("getState").invoke(open()));
        } catch (ReflectiveOperationException older) {
            return "";
        }
    }

    @Override
    public void flush() {
        producers.targets.values().forEach(target -> target.producer.flushAsync());
        while (producers.unanswered() > 0 && !control.isOver()) {
            LockSupport.parkNanos(GLANCE_NS);
        }
    }

    @Override
    public Reaction reaction(Exception error) {
        String name = error.getClass().getSimpleName();
        return AGAIN.contains(name) ? Reaction.ASK_AGAIN : name.equals(REFUSED) ? Reaction.ABORT : Reaction.GIVE_UP;
    }

    /** What the client answers; its own exception. */
    private <T> T answer(CompletableFuture<T> future) throws Exception {
        while (true) {
            try {
                return future.get(TICK_MS, TimeUnit.MILLISECONDS);
            } catch (TimeoutException none) {
                if (control.isOver()) {
                    throw none;
                }
            } catch (ExecutionException error) {
                Throwable cause = ErrorTexts.cause(error);
                throw cause instanceof Exception ? (Exception) cause : error;
            }
        }
    }

    @Override
    public void close() {
        Clients.close(producers.client);
    }
}
