package brokerstorm.kit;

/** The client takes its options, and nothing else was asked ({@code --check-options}). */
final class OptionsTaken extends RuntimeException {
    private static final long serialVersionUID = 1L;
}
